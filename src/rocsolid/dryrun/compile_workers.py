"""Runs many compiles in parallel, in forks of the child process that loaded them.

If the compiler crashes or takes too long, only one worker ends, and only the job that it was working on fails.
"""

import contextlib
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.dryrun.compile_kernels import CompileContext, CompiledConfig, progress, try_compile
from rocsolid.model.dryrun import KernelConfig
from rocsolid.process.parent_death import die_with_parent

_MAX_WORKERS: Final = 8
_INDEX_BYTES: Final = 4  # a job index in the pipe
_NOT_STARTED: Final = "not compiled, because the time limit was reached before"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One configuration to compile."""

    name: str
    config: KernelConfig
    compile_it: Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Something to do in a worker: its name, and a function whose result can be pickled."""

    name: str
    run: Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A job without a result: the compiler crashed, or there was no time."""

    error: str


def compile_all(shared: CompileContext, tasks: Sequence[Task], workers: int = 0) -> list[CompiledConfig]:
    """Compile all tasks; return the results in order, each with its resources or its error."""
    _compute_cache_key()
    jobs = [
        Job(name=task.name, run=lambda task=task: try_compile(shared, task.name, task.config, task.compile_it))  # type: ignore[misc]
        for task in tasks
    ]
    return [
        CompiledConfig(config=replace(task.config, error=result.error)) if isinstance(result, Failed) else result
        for task, result in zip(tasks, run_jobs(shared, jobs, workers), strict=True)
    ]


def run_jobs(shared: CompileContext, jobs: Sequence[Job], workers: int = 0) -> list[Any]:
    """Run all jobs; return the results in order."""
    results: dict[int, Any] = {}
    max_workers = workers or min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
    with tempfile.TemporaryDirectory(prefix="workers-", dir=shared.journal.parent) as folder:
        while remaining := [index for index in range(len(jobs)) if index not in results]:
            if shared.ends and time.monotonic() > shared.ends:
                results |= dict.fromkeys(remaining, Failed(error=_NOT_STARTED))
            else:
                results |= _run_workers(shared, jobs, remaining, max_workers, Path(folder))
    return [results[index] for index in range(len(jobs))]


def _compute_cache_key() -> None:
    """Compute the part of Triton's cache keys that takes a second, once and not in every worker: a hash of Triton's own files."""
    if "triton" in sys.modules:
        with contextlib.suppress(ImportError):
            from triton.runtime.cache import triton_key

            triton_key()


def _run_workers(
    shared: CompileContext, jobs: Sequence[Job], remaining: Sequence[int], max_workers: int, folder: Path
) -> dict[int, Any]:
    """Run workers until all have ended. Return the results; if workers crashed, some jobs may not have been started."""
    read_end, write_end = os.pipe()
    parent_pid, workers = os.getpid(), {}
    for worker_index in range(min(max_workers, len(remaining))):
        sys.stdout.flush()
        sys.stderr.flush()
        if not (pid := os.fork()):
            os.close(write_end)
            die_with_parent(parent_pid)
            _work(shared, jobs, read_end, folder / f"{worker_index}")
        workers[pid] = folder / f"{worker_index}"
    os.close(read_end)
    # A worker without a job reads the next index from the pipe. Each index is read once; the pipe ends after the last.
    with os.fdopen(write_end, "wb") as queue:
        queue.writelines(index.to_bytes(_INDEX_BYTES, "big") for index in remaining)
    results: dict[int, Any] = {}
    for pid, file in workers.items():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        unfinished = None
        for index, done, result in _read_results(file):
            unfinished = None if done else index
            if done:
                results[index] = result
        if unfinished is not None:
            results[unfinished] = Failed(error=_how_it_ended(code, file.with_suffix(".err"), shared.kernel_deadline_s))
    return results


def _work(shared: CompileContext, jobs: Sequence[Job], queue: int, file: Path) -> None:
    """Run the loop of a worker until no job is left, then end the process."""
    code = 1
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process also inside the compiler
    try:
        errors = os.open(file.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        with file.open("wb", buffering=0) as results:
            while index_bytes := os.read(queue, _INDEX_BYTES):
                index = int.from_bytes(index_bytes, "big")
                job = jobs[index]
                if shared.ends and time.monotonic() > shared.ends:
                    results.write(pickle.dumps((index, True, Failed(error=_NOT_STARTED))))
                    continue
                if not index or jobs[index - 1].name != job.name:
                    progress(shared, f"{shared.doing or shared.chip.arch}: {index + 1} of {len(jobs)}, {job.name}")
                results.write(pickle.dumps((index, False, None)))
                os.ftruncate(errors, 0)
                os.lseek(errors, 0, os.SEEK_SET)
                signal.setitimer(signal.ITIMER_REAL, shared.kernel_deadline_s)
                result = job.run()
                signal.setitimer(signal.ITIMER_REAL, 0)
                results.write(pickle.dumps((index, True, _with_printed(result, file.with_suffix(".err")))))
        code = 0
    finally:
        os._exit(code)


def _with_printed(result: Any, errors: Path) -> Any:
    """MLIR raises only "PassManager::run failed", and prints the reason."""
    if isinstance(result, CompiledConfig) and "PassManager::run failed" in result.config.error:
        printed = _printed_error(errors)
        return (
            replace(result, config=replace(result.config, error=f"{result.config.error}: {printed}"))
            if printed
            else result
        )
    return result


def _read_results(file: Path) -> Iterator[tuple[int, bool, Any]]:
    """Yield each job index when the job started, and with its result when it ended."""
    if not file.exists():
        return
    with file.open("rb") as results:
        while True:
            try:
                yield pickle.load(results)  # noqa: S301 - our own fork wrote it
            except (EOFError, pickle.UnpicklingError):
                return


def _how_it_ended(code: int, errors: Path, limit_s: float) -> str:
    """How a worker ended, and the first error it printed."""
    if code == -signal.SIGALRM:
        return f"took longer than {limit_s:g} s to compile"
    printed = _printed_error(errors)
    if code > 0 and printed:  # LLVM ends the process at an ordinary error of its assembler
        return f"the compiler stopped: {printed}"
    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return "; ".join(filter(None, [f"the compiler crashed: {ending}", printed]))


def _printed_error(errors: Path) -> str:
    text = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    return next((line.strip()[:400] for line in text.splitlines() if "error" in line.lower()), "")
