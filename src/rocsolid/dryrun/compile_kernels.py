"""Compiles kernels for a chip and keeps what each costs. Runs in the child."""

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

from rocsolid.dryrun.resource_usage import amd_resources, fp8_formats, nvidia_resources
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import KernelConfig, Resources
from rocsolid.model.platform import Platform

_KEPT: Final = ("ttir", "ttgir", "llir", "amdgcn", "hsaco", "ptx", "cubin")
_LONGEST: Final = 600
_LONGEST_STEM: Final = 180


@dataclass(frozen=True, kw_only=True)
class Compiling:
    """What all compiles of one child share."""

    chip: Chip
    journal: Path
    asm: bool = False
    save: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A configuration, and the number formats that its code names."""

    config: KernelConfig
    fp8: tuple[str, ...] = ()


def compiled(shared: Compiling, name: str, config: KernelConfig, compile_it: Callable[[], Any]) -> Compiled:
    """One configuration, compiled or with the error that came instead; the journal says what is being tried."""
    key = f"{name} {config.label}"
    _note(shared, f"begin {key}")
    started = time.monotonic()
    try:
        kernel = compile_it()
        resources = resources_of(kernel, shared.chip)
    except Exception as refused:  # noqa: BLE001 - whatever a compiler raises is the result here
        return Compiled(config=_with(config, error=_said(refused), seconds=time.monotonic() - started))
    finally:
        _note(shared, f"end {key}")
    if shared.save:
        _keep(kernel, shared.save, key)
    text = str(kernel.asm.get("amdgcn") or kernel.asm.get("ptx") or "") if shared.asm else ""
    return Compiled(
        config=_with(config, resources=resources, seconds=time.monotonic() - started, asm=text),
        fp8=fp8_formats(str(kernel.asm.get("ttir", ""))),
    )


def progress(shared: Compiling, line: str) -> None:
    """Tell whoever follows the journal."""
    _note(shared, f"at {line}")


def _note(shared: Compiling, line: str) -> None:
    with shared.journal.open("a", encoding="utf-8") as journal:
        journal.write(f"{line}\n")


def resources_of(kernel: Any, chip: Chip) -> Resources:
    """What Triton's compiled kernel asks of the chip."""
    metadata = kernel.metadata
    shared, warps = int(metadata.shared), int(metadata.num_warps)
    if chip.platform is Platform.ROCM:
        return amd_resources(kernel.asm, shared=shared, warps=warps, chip=chip)
    report = _ptxas_report(str(kernel.asm["ptx"]))
    return nvidia_resources(kernel.asm, report, shared=shared, warps=warps, chip=chip)


def quiet_compilers() -> None:
    """Inductor and Triton log the whole source of a kernel that fails; we keep the error."""
    for name in ("torch._inductor", "torch._dynamo", "torch.fx", "triton"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _with(config: KernelConfig, **changes: Any) -> KernelConfig:
    if "seconds" in changes:
        changes["seconds"] = round(changes["seconds"], 3)
    return replace(config, **changes)


def _said(error: Exception) -> str:
    """The line of a compiler's error that says most, with its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "not supported" in line] or lines[-1:]
    cause = f"; {_said(error.__cause__)}" if isinstance(error.__cause__, Exception) else ""
    return f"{type(error).__name__}: {' '.join(telling)}{cause}"[:_LONGEST]


def _ptxas_report(ptx: str) -> str:
    import triton

    from rocsolid.errors import CannotRunError

    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    if not ptxas.exists():
        msg = f"this Triton has no {ptxas.name}, which counts the registers of an NVIDIA kernel"
        raise CannotRunError(msg)
    target = next(line.split()[1] for line in ptx.splitlines() if line.startswith(".target"))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        command = [str(ptxas), "-v", f"--gpu-name={target}", str(source), "-o", str(Path(folder) / "kernel.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Triton's own tool
    return done.stdout + done.stderr


def saved_stem(key: str) -> str:
    """Under which name a configuration is saved; names of fused kernels can be longer than a file's may be."""
    stem = "".join(c if c.isalnum() or c in "_=-" else "." for c in key)
    if len(stem) <= _LONGEST_STEM:
        return stem
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{stem[: _LONGEST_STEM // 2]}.{digest}.{stem[-_LONGEST_STEM // 2 + len(digest) + 2 :]}"


def _keep(kernel: Any, folder: Path, key: str) -> None:
    stem = saved_stem(key)
    folder.mkdir(parents=True, exist_ok=True)
    said = {name: value for name, value in kernel.metadata._asdict().items() if isinstance(value, (bool, int, str))}
    (folder / f"{stem}.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
    for kind in _KEPT:
        content = kernel.asm.get(kind)
        if content is None:
            continue
        file = folder / f"{stem}.{kind}"
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(str(content), encoding="utf-8")
