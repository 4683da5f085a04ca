"""Compiles many configurations in parallel, in forks of the child process that loaded them.

If the compiler crashes, only one worker ends, and only the configuration that it was compiling fails.
"""

import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.dryrun.compile_kernels import CompileContext, CompiledConfig, progress, try_compile
from rocsolid.model.dryrun import KernelConfig
from rocsolid.process.parent_death import die_with_parent

_MAX_WORKERS: Final = 8
_INDEX_BYTES: Final = 4  # a task index in the pipe


@dataclass(frozen=True, kw_only=True)
class Task:
    """One configuration to compile."""

    name: str
    config: KernelConfig
    compile_it: Callable[[], Any]


def compile_all(shared: CompileContext, tasks: Sequence[Task], workers: int = 0) -> list[CompiledConfig]:
    """Compile all tasks; return the results in order, each with its resources or its error."""
    results: dict[int, CompiledConfig] = {}
    max_workers = workers or min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
    with tempfile.TemporaryDirectory(prefix="workers-", dir=shared.journal.parent) as folder:
        while remaining := [index for index in range(len(tasks)) if index not in results]:
            results |= _run_workers(shared, tasks, remaining, max_workers, Path(folder))
    return [results[index] for index in range(len(tasks))]


def _run_workers(
    shared: CompileContext, tasks: Sequence[Task], remaining: Sequence[int], max_workers: int, folder: Path
) -> dict[int, CompiledConfig]:
    """Run workers until all have ended. Return the results; if workers crashed, some tasks may not have been started."""
    read_end, write_end = os.pipe()
    parent_pid, workers = os.getpid(), {}
    for worker_index in range(min(max_workers, len(remaining))):
        sys.stdout.flush()
        sys.stderr.flush()
        if not (pid := os.fork()):
            os.close(write_end)
            die_with_parent(parent_pid)
            _work(shared, tasks, read_end, folder / f"{worker_index}")
        workers[pid] = folder / f"{worker_index}"
    os.close(read_end)
    # A worker without a task reads the next task index from the pipe. Each index is read once; the pipe ends after the last.
    with os.fdopen(write_end, "wb") as queue:
        queue.writelines(index.to_bytes(_INDEX_BYTES, "big") for index in remaining)
    results: dict[int, CompiledConfig] = {}
    for pid, file in workers.items():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        unfinished = None
        for index, result in _read_results(file):
            unfinished = None if result else index
            if result:
                results[index] = result
        if unfinished is not None:
            error = f"the compiler crashed: {_how_it_ended(code, file.with_suffix('.err'))}"
            results[unfinished] = CompiledConfig(config=replace(tasks[unfinished].config, error=error))
    return results


def _work(shared: CompileContext, tasks: Sequence[Task], queue: int, file: Path) -> None:
    """Run the loop of a worker until no task is left, then end the process."""
    code = 1
    try:
        errors = os.open(file.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        with file.open("wb", buffering=0) as results:
            while index_bytes := os.read(queue, _INDEX_BYTES):
                index = int.from_bytes(index_bytes, "big")
                task = tasks[index]
                if not index or tasks[index - 1].name != task.name:
                    progress(shared, f"{shared.chip.arch}: {index + 1} of {len(tasks)}, {task.name}")
                results.write(pickle.dumps((index, None)))
                results.write(pickle.dumps((index, try_compile(shared, task.name, task.config, task.compile_it))))
        code = 0
    finally:
        os._exit(code)


def _read_results(file: Path) -> Iterator[tuple[int, CompiledConfig | None]]:
    """Yield each task index with None when the task started, and with its result when it ended."""
    if not file.exists():
        return
    with file.open("rb") as results:
        while True:
            try:
                yield pickle.load(results)  # noqa: S301 - our own fork wrote it
            except (EOFError, pickle.UnpicklingError):
                return


def _how_it_ended(code: int, errors: Path) -> str:
    """How a worker ended, and the first error it printed."""
    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    text = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    return "; ".join([ending, *[line.strip() for line in text.splitlines() if "error" in line.lower()][:1]])
