"""Try every call of the capture-rule table on the CUDA runtime, and write the evidence record.

    python scripts/measure_capture_rules.py [--out evidence/capture-rules-on-cuda.json] [--library libcudart.so.13] [--only CASE]

The cases are those that `make test-hip` tries on the HIP runtimes (src/rocsolid/prove/capture_cases.py), so that the columns mean the same.
Each case has its own capture. If one leaves a stream capturing or ends its process, a new process continues with the next case.
Needs an NVIDIA GPU, and the runtime of torch or the one given with --library; takes about a minute.
At the end it prints the rows of the table that differ.
"""

import argparse
import contextlib
import ctypes as c
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocsolid.measure.evidence import evidence, write

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rocsolid.catalog.capture_rules import CAPTURE_RULES  # noqa: E402
from rocsolid.model.capture_rule import CaptureMode, Outcome, Runtime  # noqa: E402
from rocsolid.prove.capture_answers import (  # noqa: E402
    agrees,
    run_cases,
    word,
)
from rocsolid.prove.capture_cases import MODES  # noqa: E402

CASES = ROOT / "src/rocsolid/prove/capture_cases.py"
DEADLINE_S = 60
# Runs on any GPU since 2018; the driver compiles it. Extra launch arguments are ignored.
KERNEL = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry touch(.param .u64 place) {
    .reg .b64 %at;
    .reg .b32 %one;
    ld.param.u64 %at, [place];
    cvta.to.global.u64 %at, %at;
    mov.b32 %one, 1065353216;
    st.global.b32 [%at], %one;
    ret;
}
"""
# For a driver without its compiler. Eight warps are the threads that a case launches.
COMPILED_KERNEL = """
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def touch(place):
    tl.store(place, 1.0)


source = ASTSource(fn=touch, signature={"place": "*fp32"})
made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[2]), 32), options={"num_warps": 8})
Path(sys.argv[1]).write_bytes(made.asm["cubin"])
"""


def main() -> int:
    """Try the cases, write the record, and compare it with the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "evidence/capture-rules-on-cuda.json")
    parser.add_argument("--library", help="the CUDA runtime (default: the one that torch loads)")
    parser.add_argument(
        "--only",
        choices=[rule.id for rule in CAPTURE_RULES],
        metavar="CASE",
        help="try one case, keep the rest of the record",
    )
    args = parser.parse_args()
    library = args.library or next(runtimes(), "")
    chip = device()
    if not library or not chip:
        print("no CUDA runtime found: give its path with --library" if chip else "no NVIDIA GPU here", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        record = heading(library, chip)
        kernel = working_kernel(library, Path(folder), chip["capability"])
        record["kernel"] = kernel.suffix.removeprefix(".")
        record["answers"] = {"cuda": stored(args.out, record) if args.only else {mode: {} for mode in MODES}}
        wanted = [args.only] if args.only else [rule.id for rule in CAPTURE_RULES]
        for mode in MODES:
            record["answers"]["cuda"][mode] |= try_cases(library, kernel, mode, wanted)
            write(record, args.out)
    for line in differences(record["answers"]["cuda"]):
        print(line)
    return 0


def runtimes() -> Iterator[str]:
    """Yield paths of the CUDA runtime: loaded by torch, in its wheels, installed on the machine."""
    with contextlib.suppress(Exception):
        import torch

        torch.cuda.init()
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        yield from (line.split()[-1] for line in maps.splitlines() if "/libcudart" in line)
    packages = Path(sysconfig.get_path("purelib"))
    for folder, pattern in (
        (packages, "nvidia/*/lib/libcudart.so.*"),
        (packages, "torch/lib/libcudart*.so*"),
        (Path("/usr/local"), "cuda*/lib*/libcudart.so"),
        (Path("/usr/lib"), "*/libcudart.so*"),
    ):
        yield from map(str, sorted(folder.glob(pattern), reverse=True))


def device() -> dict[str, Any]:
    """The first GPU and its driver; empty without a GPU."""
    try:
        driver = c.CDLL("libcuda.so.1")
    except OSError:
        return {}
    if driver.cuInit(0):
        return {}
    name, version, numbers = c.create_string_buffer(256), c.c_int(), [c.c_int(), c.c_int()]
    driver.cuDeviceGetName(name, 256, 0)
    driver.cuDriverGetVersion(c.byref(version))
    for attribute, number in zip((75, 76), numbers, strict=True):
        driver.cuDeviceGetAttribute(c.byref(number), attribute, 0)
    version_file = Path("/proc/driver/nvidia/version")
    module = version_file.read_text(encoding="utf-8").split("\n")[0].split() if version_file.exists() else []
    return {
        "device": name.value.decode(),
        "capability": numbers[0].value * 10 + numbers[1].value,
        "driver": next((part for part in module if part[0].isdigit() and "." in part), "unknown"),
        "driver's CUDA": _release(version.value),
    }


def _release(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def heading(library: str, chip: Mapping[str, Any]) -> dict[str, Any]:
    """The record without its results."""
    version = c.c_int()
    c.CDLL(library).cudaRuntimeGetVersion(c.byref(version))
    torch = "none"
    with contextlib.suppress(ImportError):
        import torch as installed

        torch = installed.__version__
    return evidence(
        what="what CUDA does with each call of the capture-rule table during a capture, in three modes",
        command="python scripts/measure_capture_rules.py",
        **chip,
        torch=torch,
        runtime={"library": Path(library).name, "CUDA": _release(version.value), "number": version.value},
        launches="with cuLaunchKernel, the driver's call; modules are loaded with cuModuleLoadData",
    )


def stored(out: Path, record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The results already in the file, which must be from the same device, driver and runtime."""
    old = json.loads(out.read_text(encoding="utf-8"))
    other = [name for name in ("device", "driver", "runtime") if old[name] != record[name]]
    if other:
        sys.exit(f"{out} is from another {' and '.join(other)}: run without --only")
    answered: dict[str, dict[str, Any]] = old["answers"]["cuda"]
    return answered


def start(library: str, kernel: Path, mode: str, cases: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run these cases in a child process."""
    return subprocess.run(
        [sys.executable, str(CASES), library, str(kernel), mode, *cases],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def working_kernel(library: str, folder: Path, capability: int) -> Path:
    """A kernel that can be captured here: as PTX, or compiled by Triton."""
    kernel = folder / "touch.ptx"
    kernel.write_text(KERNEL, encoding="utf-8")
    seen = next(run_cases(lambda left: start(library, kernel, MODES[0], left), ["nothing"]))
    if seen.get("nodes") == 1:
        return kernel
    print("the driver cannot compile the PTX kernel, so Triton compiles it:", seen, file=sys.stderr)
    program, compiled = folder / "kernel.py", folder / "touch.cubin"
    program.write_text(COMPILED_KERNEL, encoding="utf-8")
    subprocess.run([sys.executable, str(program), str(compiled), str(capability)], check=True)
    return compiled


def try_cases(library: str, kernel: Path, mode: str, cases: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The result of each case in a mode."""
    seen = {}
    for answer in run_cases(lambda left: start(library, kernel, mode, left), cases):
        seen[answer.pop("case")] = answer
    print(f"{mode}: {len(seen)} cases", flush=True)
    return seen


def differences(seen: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a line for each row of the table that differs or is unknown, with the results in the three modes."""
    for rule in CAPTURE_RULES:
        stored = [rule.behavior(Runtime.CUDA, CaptureMode(mode)) for mode in MODES]
        given = [seen[mode][rule.id] for mode in MODES]
        known = [answer.outcome is not Outcome.UNKNOWN for answer in stored]
        if all(known) and all(map(agrees, stored, given)):
            continue
        kind = "wrong  " if any(known) else "unknown"
        yield f"{kind} {rule.id:36} {' '.join(map(word, given))}"


if __name__ == "__main__":
    raise SystemExit(main())
