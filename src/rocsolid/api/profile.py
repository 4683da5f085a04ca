"""Profile a workload with torch.profiler or rocprofv3."""

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
from types import FrameType
from typing import Any, Final

from rocsolid.api.trace import trace
from rocsolid.catalog.counters import COUNTER_RUNS
from rocsolid.errors import CannotRunError, UsageError
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.progress import OnStep, Step, ignore_step
from rocsolid.model.trace import TraceReport
from rocsolid.model.workload import Workload
from rocsolid.new_torch import check_new_torch

_ROCPROF: Final = "rocprofv3"
_MAX_PYTHON_CALLS: Final = 2_000_000  # recorded with stacks; each takes memory and an event of the trace
_TRACE_PATTERNS: Final = ("*_results.db", "*_results.json", "*_kernel_trace.csv")


@dataclass(frozen=True, kw_only=True)
class ProfiledRun:
    """The trace of a profiled workload, and the overhead of the profiler."""

    file: Path
    plain_ms: float  # median step without the profiler
    profiled_ms: float  # median step with the profiler
    without_stacks: str = ""  # why no Python stacks were recorded although they were asked for

    @property
    def overhead(self) -> float:
        """How much longer a step takes with the profiler; 0.1 is 10 %."""
        return self.profiled_ms / self.plain_ms - 1 if self.plain_ms else 0.0


def profile_workload(
    workload: str | Workload,
    file: Path,
    *,
    steps: int = 3,
    warmups: int = 3,
    shapes: bool = True,
    stacks: bool = False,
    memory: bool = False,
    on_step: OnStep = ignore_step,
) -> ProfiledRun:
    """Record some steps of a workload, or of the one with this name, into `file`. It is compressed if its name ends in `.gz`.

    Without a GPU, allocations are recorded, too.
    """
    check_new_torch()
    on_step(Step(what="loading the workload", total=4, alike=False))
    workload = load_workload(workload) if isinstance(workload, str) else workload
    import torch
    from torch import profiler

    from rocsolid.torchapi.graphs.graph_marks import graphs_marked

    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else _do_nothing
    on_step(Step(what=f"{warmups} warm-up calls", done=1, total=4, alike=False))
    for _ in range(warmups):
        workload()
    synchronize()
    without_stacks = ""
    if stacks and (calls := _python_calls(workload)) * (steps + 1) > _MAX_PYTHON_CALLS:
        stacks = False
        without_stacks = (
            f"recorded without stacks: one call of the workload makes {calls:,} Python calls, and stacks are recorded for "
            f"{_MAX_PYTHON_CALLS:,} at most; give a smaller part of the program, or fewer steps"
        )
    on_step(Step(what=f"recording {steps} calls", done=2, total=4, alike=False))
    plain = _step_times(workload, synchronize, steps)
    activities = [profiler.ProfilerActivity.CPU]
    activities += [profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    recorder = profiler.profile(
        activities=activities,
        # The first step with the profiler includes its start-up time and is not recorded.
        schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
        record_shapes=shapes,
        with_stack=stacks,
        profile_memory=memory or not torch.cuda.is_available(),
        acc_events=True,
    )
    with graphs_marked(), recorder:
        workload()
        synchronize()
        recorder.step()
        profiled = _step_times(workload, synchronize, steps, recorder.step)
    on_step(Step(what=f"writing {file}", done=3, total=4, alike=False))
    file.parent.mkdir(parents=True, exist_ok=True)
    recorder.export_chrome_trace(str(file))
    return ProfiledRun(
        file=file,
        plain_ms=statistics.median(plain),
        profiled_ms=statistics.median(profiled),
        without_stacks=without_stacks,
    )


def profile(fn: Callable[..., Any], /, *args: Any, trace_file: str | Path | None = None, **kwargs: Any) -> TraceReport:
    """Call a function ten times, three of them recorded with torch.profiler, and analyze the trace like `rs.trace`.

    Args:
        fn: a function or module.
        args: arguments of the call.
        trace_file: where to keep the trace; compressed if its name ends in `.gz`.
        kwargs: keyword arguments of the call.

    Example:
        >>> import rocsolid as rs, torch
        >>> report = rs.profile(torch.nn.Linear(64, 64), torch.ones(8, 64))
        >>> "aten::addmm" in [operator.name for operator in report.files[0].cpu.operators]
        True

    """
    if not callable(fn):
        msg = f"rs.profile needs a function or a module and its arguments; got {type(fn).__name__}"
        raise UsageError(msg)
    workload = Workload(name="rs.profile", callable=fn, args=args, kwargs=kwargs)
    with tempfile.TemporaryDirectory(prefix="rocsolid-profile-") as folder:
        file = Path(trace_file) if trace_file else Path(folder) / "trace.json"
        return trace(profile_workload(workload, file).file)


def _step_times(
    workload: Workload, synchronize: Callable[[], Any], steps: int, after_step: Callable[[], Any] | None = None
) -> list[float]:
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        workload()
        synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
        if after_step is not None:
            after_step()
    return times


def _python_calls(workload: Workload) -> int:
    """Return how many Python and C functions one call of the workload calls in this thread."""
    count = 0

    def on_event(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(on_event)
    try:
        workload()
    finally:
        sys.setprofile(previous)
    return count


def _do_nothing() -> None:
    """On the CPU there is nothing to synchronize."""


@dataclass(frozen=True, kw_only=True)
class RocprofRun:
    """The files that rocprofv3 wrote (the trace first), and a message for each counter set that it could not count."""

    files: tuple[Path, ...]
    failed_counters: tuple[str, ...] = ()


def rocprof_workload(
    name: str, folder: Path, *, steps: int = 3, warmups: int = 3, counters: Sequence[str] | None = None
) -> RocprofRun:
    """Run a workload under rocprofv3, once for the trace and once for each set of counters.

    Args:
        name: the workload.
        folder: where the files are written.
        steps: how many calls to record.
        warmups: how many calls to make before them.
        counters: the counters to collect, in one run; `None` for the counters that occupancy, L2 hit rate and
            bandwidth need, in one run each.

    """
    tool = shutil.which(_ROCPROF)
    if tool is None:
        msg = f"{_ROCPROF} is not installed; it is part of ROCm (package rocprofiler-sdk)"
        raise CannotRunError(msg)
    load_workload(name)  # reports an error in the workload before the tool starts
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rocsolid.api.profile", name, str(warmups), str(steps)]
    trace = ["--kernel-trace", "--hip-trace", "--memory-copy-trace", "--output-format", "json"]
    _run([tool, *trace, "-d", str(folder), "-o", "trace", "--", *command])
    files = [file for pattern in _TRACE_PATTERNS for file in sorted(folder.rglob(pattern))][:1]
    if not files:
        msg = f"{_ROCPROF} succeeded but wrote no result to {folder}"
        raise CannotRunError(msg)
    if counters is not None:
        files += _count([tool], counters, folder, "counters", command) if counters else []
        return RocprofRun(files=tuple(files))
    failed: list[str] = []
    for run_number, alternatives in enumerate(COUNTER_RUNS, 1):
        for counter_set in alternatives:
            try:
                files += _count([tool], counter_set, folder, f"counters-{run_number}", command)
                break
            except CannotRunError as error:
                failed.append(f"cannot count {', '.join(counter_set)}: {error}")
    return RocprofRun(files=tuple(files), failed_counters=tuple(failed))


def _count(tool: Sequence[str], counters: Sequence[str], folder: Path, name: str, command: Sequence[str]) -> list[Path]:
    """Run the workload with counters. Files of an earlier run in the folder are deleted first."""
    for old in folder.rglob(f"*{name}_counter_collection.csv"):
        old.unlink()
    options = ["--pmc", *counters, "--output-format", "csv"]
    _run([*tool, *options, "-d", str(folder), "-o", name, "--", *command])
    written = sorted(folder.rglob(f"*{name}_counter_collection.csv"))
    if not written:
        msg = f"{_ROCPROF} succeeded but wrote no counters to {folder}"
        raise CannotRunError(msg)
    return written


def _run(command: Sequence[str]) -> None:
    source_folder = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (source_folder, os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryFile() as output:
        completed = subprocess.run(  # noqa: S603 - the vendor's tool, found on the path
            command, env={**os.environ, "PYTHONPATH": path}, stdout=output, stderr=subprocess.STDOUT, check=False
        )
        output.seek(0)
        last_line = output.read()[-400:].decode("utf-8", "replace").strip().rpartition("\n")[2]
    if completed.returncode != 0:
        msg = f"{_ROCPROF} exited with {completed.returncode}: {last_line}"
        raise CannotRunError(msg)


def main(name: str, warmups: str, steps: str) -> None:
    """In the child process of rocprofv3: run the warm-up calls and the steps."""
    workload = load_workload(name)
    for _ in range(int(warmups) + int(steps)):
        workload()


if __name__ == "__main__":
    main(*sys.argv[1:])
