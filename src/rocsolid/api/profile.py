"""Profile a workload: warm up, record a few steps, and go straight to the answers."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.counters import RUNS
from rocsolid.errors import CannotRunError
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.workload import Workload

_ROCPROF: Final = "rocprofv3"
_OUTPUTS: Final = ("*_results.db", "*_results.json", "*_kernel_trace.csv")


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """Where the trace is, and what the profiler itself cost."""

    file: Path
    plain_ms: float  # a step without the profiler, median
    profiled_ms: float  # a step under it, median

    @property
    def overhead(self) -> float:
        """How much longer a step took under the profiler; 0.1 is a tenth."""
        return self.profiled_ms / self.plain_ms - 1 if self.plain_ms else 0.0


def profile_workload(
    name: str,
    file: Path,
    *,
    steps: int = 3,
    warmups: int = 3,
    shapes: bool = True,
    stacks: bool = False,
    memory: bool = False,
) -> Profiled:
    """Record some steps of a workload with torch's profiler, into `file` (JSON, or gzip by its name)."""
    workload = load_workload(name)
    import torch
    from torch import profiler

    wait = torch.cuda.synchronize if torch.cuda.is_available() else _nothing
    for _ in range(warmups):
        workload()
    wait()
    plain = _step_times(workload, wait, steps)
    activities = [profiler.ProfilerActivity.CPU]
    activities += [profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    recorder = profiler.profile(
        activities=activities,
        # The first step under the profiler starts its machinery and is not recorded.
        schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
        record_shapes=shapes,
        with_stack=stacks,
        profile_memory=memory,
        acc_events=True,
    )
    with recorder:
        workload()
        wait()
        recorder.step()
        profiled = _step_times(workload, wait, steps, recorder.step)
    file.parent.mkdir(parents=True, exist_ok=True)
    recorder.export_chrome_trace(str(file))
    return Profiled(file=file, plain_ms=statistics.median(plain), profiled_ms=statistics.median(profiled))


def _step_times(
    workload: Workload, wait: Callable[[], Any], steps: int, after: Callable[[], Any] | None = None
) -> list[float]:
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        workload()
        wait()
        times.append((time.perf_counter() - begun) * 1e3)
        if after is not None:
            after()
    return times


def _nothing() -> None:
    """Without a device there is nothing to wait for."""


@dataclass(frozen=True, kw_only=True)
class Rocprofed:
    """What rocprofv3 wrote: the trace first, then counters; and which counters it would not count, a line each."""

    files: tuple[Path, ...]
    refused: tuple[str, ...] = ()


def rocprof_workload(
    name: str, folder: Path, *, steps: int = 3, warmups: int = 3, counters: Sequence[str] | None = None
) -> Rocprofed:
    """Run a workload under rocprofv3, once for the trace and once more for each set of counters.

    Args:
        name: the workload.
        folder: where the files go.
        steps: how many calls to record.
        warmups: how many calls before.
        counters: what to count, in one run; `None` for what occupancy, cache hits and bandwidth need, in a run each.

    """
    tool = shutil.which(_ROCPROF)
    if tool is None:
        msg = f"{_ROCPROF} is not installed; it comes with ROCm (package rocprofiler-sdk)"
        raise CannotRunError(msg)
    load_workload(name)  # a mistake in the workload is said before the tool is started
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rocsolid.api.profile", name, str(warmups), str(steps)]
    trace = ["--kernel-trace", "--hip-trace", "--memory-copy-trace", "--output-format", "json"]
    _run([tool, *trace, "-d", str(folder), "-o", "trace", "--", *command])
    found = [file for pattern in _OUTPUTS for file in sorted(folder.rglob(pattern))][:1]
    if not found:
        msg = f"{_ROCPROF} ended well but wrote no result under {folder}"
        raise CannotRunError(msg)
    if counters is not None:
        wrote = _count([tool], counters, folder, "counters", command) if counters else []
        return Rocprofed(files=(*found, *wrote))
    refused: list[str] = []
    for number, choices in enumerate(RUNS, 1):
        for asked in choices:
            try:
                found += _count([tool], asked, folder, f"counters-{number}", command)
                break
            except CannotRunError as refusal:
                refused.append(f"{', '.join(asked)} could not be counted: {refusal}")
    return Rocprofed(files=tuple(found), refused=tuple(refused))


def _count(tool: Sequence[str], counters: Sequence[str], folder: Path, name: str, command: Sequence[str]) -> list[Path]:
    """One run that counts; a folder may hold the files of an earlier one, which are not ours."""
    for old in folder.rglob(f"*{name}_counter_collection.csv"):
        old.unlink()
    options = ["--pmc", *counters, "--output-format", "csv"]
    _run([*tool, *options, "-d", str(folder), "-o", name, "--", *command])
    wrote = sorted(folder.rglob(f"*{name}_counter_collection.csv"))
    if not wrote:
        msg = f"{_ROCPROF} ended well but wrote no counters under {folder}"
        raise CannotRunError(msg)
    return wrote


def _run(command: Sequence[str]) -> None:
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(  # noqa: S603 - the vendor's tool, found on the path
            command, env={**os.environ, "PYTHONPATH": path}, stdout=said, stderr=subprocess.STDOUT, check=False
        )
        said.seek(0)
        last = said.read()[-400:].decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.returncode != 0:
        msg = f"{_ROCPROF} ended with {done.returncode}: {last}"
        raise CannotRunError(msg)


def main(name: str, warmups: str, steps: str) -> None:
    """Under another profiler: warm up, then run the steps."""
    workload = load_workload(name)
    for _ in range(int(warmups) + int(steps)):
        workload()


if __name__ == "__main__":
    main(*sys.argv[1:])
