"""Checks of the HIP or CUDA runtime itself: the capture rules call by call, and the names and texts of errors."""

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.capture_rules import CAPTURE_RULES, capture_rule, runtimes_on
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS
from rocsolid.model.capture_rule import CaptureMode, CaptureRule, Runtime
from rocsolid.model.environment import Environment
from rocsolid.model.proof import Claim, ClaimResult, ClaimVerdict
from rocsolid.model.runtime_error import RuntimeErrorCode
from rocsolid.prove.capture_answers import agrees, run_cases, word
from rocsolid.prove.check import CannotDecide, Task, check, result

_CASES: Final = str(Path(__file__).with_name("capture_cases.py"))
_DEADLINE_S: Final = 60.0
_THREADS: Final = 256  # that a case launches
_KERNEL: Final = """
import sys
from pathlib import Path

import triton
import triton.language as tl


@triton.jit
def touch(place):
    tl.store(place, 1.0)


target = triton.runtime.driver.active.get_current_target()
source = triton.compiler.ASTSource(fn=touch, signature={"place": "*fp32"})
made = triton.compile(source, target=target, options={"num_warps": int(sys.argv[2]) // target.warp_size})
Path(sys.argv[1]).write_bytes(made.asm["hsaco" if target.backend == "hip" else "cubin"])
"""


@check(
    "capture-rules",
    "the runtime does with the call, in all three modes, what the table says",
    rank=1,
    estimate_s=45,
    deadline_s=300,
    gpu=True,
)
def capture_rules(task: Task) -> Iterator[ClaimResult]:
    """Make every call of the table during a capture, in each mode, and compare."""
    library = loaded_library()
    if not library:
        msg = "torch has loaded neither libamdhip64 nor libcudart"
        raise CannotDecide(msg)
    with tempfile.TemporaryDirectory() as folder:
        program, kernel = Path(folder, "kernel.py"), Path(folder, "touch.bin")
        program.write_text(_KERNEL, encoding="utf-8")
        made = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, str(program), str(kernel), str(_THREADS)], capture_output=True, text=True, check=False
        )
        if not kernel.exists():
            msg = f"Triton could not compile the kernel: {made.stderr.strip().splitlines()[-1:]}"
            raise CannotDecide(msg)
        seen = {mode.value: _answers(library, kernel, mode.value) for mode in CaptureMode}
    yield from judge_rules(task.claims, seen, task.env)


def judge_rules(
    claims: Sequence[Claim], seen: Mapping[str, Mapping[str, Mapping[str, Any]]], env: Environment
) -> Iterator[ClaimResult]:
    """Compare the answers with the columns that apply to this machine. `seen` is by mode and rule."""
    columns = runtimes_on(env.platform, env.rocm_version)
    for claim in claims:
        ids = [claim.id.removeprefix("capture-rule:")] if claim.id.startswith("capture-rule:") else claim.refs
        rules = [capture_rule(rule_id) for rule_id in ids or ("stream-synchronize", "device-synchronize", "malloc")]
        words = {rule.id: " ".join(word(seen[mode.value].get(rule.id, {})) for mode in CaptureMode) for rule in rules}
        holds = all(any(_agrees(rule, column, seen) for column in columns) for rule in rules)
        unknown = all(word(seen[mode.value].get(rule.id, {})) == "odd" for rule in rules for mode in CaptureMode)
        detail = "; ".join(f"{name}: {text}" for name, text in words.items())
        yield result(claim, ClaimVerdict.COULD_NOT_RUN if unknown and not holds else holds, detail, answers=dict(words))


def _agrees(rule: CaptureRule, column: Runtime, seen: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bool:
    return all(
        rule.id in seen[mode.value] and agrees(rule.behavior(column, mode), seen[mode.value][rule.id])
        for mode in CaptureMode
    )


def _answers(library: str, kernel: Path, mode: str) -> dict[str, dict[str, Any]]:
    def start(left: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, _CASES, library, str(kernel), mode, *left],
            capture_output=True, text=True, timeout=_DEADLINE_S, check=False,
        )  # fmt: skip

    return {answer.pop("case"): answer for answer in run_cases(start, [rule.id for rule in CAPTURE_RULES])}


def loaded_library() -> str:
    """Return the path of the HIP or CUDA runtime that torch uses; empty if it uses none."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.init()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = dict.fromkeys(line.split()[-1] for line in maps if "/lib" in line)
    return next((path for path in paths if "libamdhip64" in path or "libcudart" in path), "")


@check("errors", "the runtime gives the error this name and this text", rank=3, estimate_s=5)
def errors(task: Task) -> Iterator[ClaimResult]:
    """Ask the runtime for the name and text of each error; this needs no GPU."""
    path = loaded_library()
    if not path:
        msg = "no HIP or CUDA runtime is loaded"
        raise CannotDecide(msg)
    library = ctypes.CDLL(path)
    prefix = "hip" if hasattr(library, "hipGetErrorName") else "cuda"
    by_number = {error.number: error for error in RUNTIME_ERRORS}
    for claim in task.claims:
        error = by_number[int(claim.id.removeprefix("error:"))]
        texts = []
        for function in (f"{prefix}GetErrorName", f"{prefix}GetErrorString"):
            call = getattr(library, function)
            call.restype = ctypes.c_char_p
            texts.append((call(error.number) or b"").decode())
        yield judge_error(claim, error, *texts, hip=prefix == "hip")


def judge_error(claim: Claim, error: RuntimeErrorCode, name: str, text: str, *, hip: bool) -> ClaimResult:
    """Compare the runtime's own name and text with the catalogue's."""
    wanted = error.hip if hip else error.cuda
    if hip and not wanted:
        return result(claim, ClaimVerdict.NOT_APPLICABLE, f"HIP has no error {error.number}: {name}")
    right_text = text in (error.hip_text or error.text, error.text) if hip else text == error.text
    return result(claim, name == wanted and right_text, f"{name}: {text}", name=name, text=text)
