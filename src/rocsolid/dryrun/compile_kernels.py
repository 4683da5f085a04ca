"""Compiles kernels for a chip and reads their resource usage. Runs in the child process."""

import hashlib
import json
import logging
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.dryrun.resource_usage import amd_resources, assembly_was_dropped, fp8_formats, nvidia_resources
from rocsolid.errors import CannotRunError
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import KernelConfig, Resources
from rocsolid.model.platform import Platform
from rocsolid.torchapi.private_api import COMPILER_PACKAGES

_SAVED_STAGES: Final = ("ttir", "ttgir", "llir", "amdgcn", "hsaco", "ptx", "cubin")
_MAX_ERROR_CHARACTERS: Final = 600
_MAX_STEM_CHARACTERS: Final = 180


@dataclass(frozen=True, kw_only=True)
class CompileContext:
    """What all compiles of one child process share."""

    chip: Chip
    journal: Path
    asm: bool = False  # include the assembly in the result
    save: Path | None = None  # folder for the generated code
    kernel_deadline_s: float = 0.0  # for each configuration; 0: no limit
    doing: str = ""  # at the start of the progress lines; the chip if empty
    ends: float = 0.0  # value of time.monotonic() after which nothing is started; 0: no limit


@dataclass(frozen=True, kw_only=True)
class CompiledConfig:
    """A compiled configuration, and the FP8 formats in its code."""

    config: KernelConfig
    fp8: tuple[str, ...] = ()


def try_compile(
    shared: CompileContext, name: str, config: KernelConfig, compile_it: Callable[[], Any]
) -> CompiledConfig:
    """Compile one configuration and return its resources or its error. The journal records what is being compiled."""
    key = f"{name} {config.label}"
    _write_journal(shared, f"begin {key}")
    started = time.monotonic()
    try:
        kernel = compile_it()
        resources = resources_of(kernel, shared.chip)
    except Exception as error:  # noqa: BLE001 - any error of the compiler is a result
        return CompiledConfig(config=_changed(config, error=_error_text(error), seconds=time.monotonic() - started))
    finally:
        _write_journal(shared, f"end {key}")
    if shared.save:
        _save(kernel, shared.save, key)
    text = str(kernel.asm.get("amdgcn") or kernel.asm.get("ptx") or "") if shared.asm else ""
    return CompiledConfig(
        config=_changed(config, resources=resources, seconds=time.monotonic() - started, asm=text),
        fp8=fp8_formats(str(kernel.asm.get("ttir", ""))),
    )


def progress(shared: CompileContext, line: str) -> None:
    """Write a progress line to the journal."""
    _write_journal(shared, f"at {line}")


def _write_journal(shared: CompileContext, line: str) -> None:
    with shared.journal.open("a", encoding="utf-8") as journal:
        journal.write(f"{line}\n")


def resources_of(kernel: Any, chip: Chip) -> Resources:
    """The resource usage of a kernel that Triton compiled."""
    metadata = kernel.metadata
    shared, warps = int(metadata.shared), int(metadata.num_warps)
    if chip.platform is Platform.ROCM:
        if assembly_was_dropped(kernel.asm):
            msg = "the compiler left the kernel empty, because it cannot compile the inline assembly"
            raise CannotRunError(msg)
        return amd_resources(kernel.asm, shared=shared, warps=warps, chip=chip)
    report = _ptxas_report(str(kernel.asm["ptx"]))
    return nvidia_resources(kernel.asm, report, shared=shared, warps=warps, chip=chip)


def quiet_compilers() -> None:
    """Silence Inductor and Triton, which log the whole source of a kernel that fails."""
    for name in (*COMPILER_PACKAGES, "torch.fx", "triton"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _changed(config: KernelConfig, **changes: Any) -> KernelConfig:
    if "seconds" in changes:
        changes["seconds"] = round(changes["seconds"], 3)
    return replace(config, **changes)


def _error_text(error: Exception) -> str:
    """Return the type of a compiler's error, and the lines that contain the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    informative = [line for line in lines if "error" in line.lower() or "not supported" in line] or lines[-1:]
    cause = f"; {_error_text(error.__cause__)}" if isinstance(error.__cause__, Exception) else ""
    return f"{type(error).__name__}: {' '.join(informative)}{cause}"[:_MAX_ERROR_CHARACTERS]


def _ptxas_report(ptx: str) -> str:
    import triton

    tools = sorted((Path(triton.__file__).parent / "backends" / "nvidia" / "bin").glob("ptxas*"))
    if not tools:
        msg = "this Triton has no ptxas, which is needed for the register count of NVIDIA kernels"
        raise CannotRunError(msg)
    target = next(line.split()[1] for line in ptx.splitlines() if line.startswith(".target"))
    error = ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        for ptxas in tools:  # since Triton 3.9, only the second one reads the PTX for any GPU
            command = [str(ptxas), "-v", f"--gpu-name={target}", str(source), "-o", str(Path(folder) / "kernel.cubin")]
            finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Triton's own tool
            if finished.returncode == 0:
                return finished.stdout + finished.stderr
            error = error or finished.stderr.strip().partition("\n")[0]
    msg = f"ptxas cannot read the PTX that Triton wrote: {error}"
    raise CannotRunError(msg)


def saved_stem(key: str) -> str:
    """Return the file name for a configuration, without suffix. Long names of fused kernels are shortened."""
    stem = "".join(c if c.isalnum() or c in "_=-" else "." for c in key)
    if len(stem) <= _MAX_STEM_CHARACTERS:
        return stem
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{stem[: _MAX_STEM_CHARACTERS // 2]}.{digest}.{stem[-_MAX_STEM_CHARACTERS // 2 + len(digest) + 2 :]}"


def _save(kernel: Any, folder: Path, key: str) -> None:
    stem = saved_stem(key)
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {name: value for name, value in kernel.metadata._asdict().items() if isinstance(value, (bool, int, str))}
    (folder / f"{stem}.json").write_text(json.dumps(metadata, indent=1), encoding="utf-8")
    for stage in _SAVED_STAGES:
        content = kernel.asm.get(stage)
        if content is None:
            continue
        file = folder / f"{stem}.{stage}"
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(str(content), encoding="utf-8")
