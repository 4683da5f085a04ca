"""Compiles many configurations in parallel, in forks of the child process that loaded them.

A compiler may crash its process. Then only one worker and the configuration it was compiling are lost.
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
_NUMBER_BYTES: Final = 4


@dataclass(frozen=True, kw_only=True)
class Task:
    """One configuration to compile."""

    name: str
    config: KernelConfig
    compile_it: Callable[[], Any]


def compile_all(shared: CompileContext, tasks: Sequence[Task], workers: int = 0) -> list[CompiledConfig]:
    """Compile all tasks; returns them in order, each with its resources or its error."""
    done: dict[int, CompiledConfig] = {}
    most = workers or min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
    with tempfile.TemporaryDirectory(prefix="workers-", dir=shared.journal.parent) as folder:
        while waiting := [number for number in range(len(tasks)) if number not in done]:
            done |= _round(shared, tasks, waiting, most, Path(folder))
    return [done[number] for number in range(len(tasks))]


def _round(
    shared: CompileContext, tasks: Sequence[Task], waiting: Sequence[int], most: int, folder: Path
) -> dict[int, CompiledConfig]:
    """Run workers until all have ended; tasks that no worker started are left for the next round."""
    reading, writing = os.pipe()
    parent, workers = os.getpid(), {}
    for number in range(min(most, len(waiting))):
        sys.stdout.flush()
        sys.stderr.flush()
        if not (pid := os.fork()):
            os.close(writing)
            die_with_parent(parent)
            _work(shared, tasks, reading, folder / f"{number}")
        workers[pid] = folder / f"{number}"
    os.close(reading)
    # Idle workers read the next task number from the pipe; each number is read once, and the pipe ends after the last.
    with os.fdopen(writing, "wb") as queue:
        queue.writelines(number.to_bytes(_NUMBER_BYTES, "big") for number in waiting)
    done: dict[int, CompiledConfig] = {}
    for pid, file in workers.items():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        started = None
        for number, result in _results(file):
            started = None if result else number
            if result:
                done[number] = result
        if started is not None:
            error = f"the compiler crashed: {_ending(code, file.with_suffix('.err'))}"
            done[started] = CompiledConfig(config=replace(tasks[started].config, error=error))
    return done


def _work(shared: CompileContext, tasks: Sequence[Task], queue: int, file: Path) -> None:
    """The loop of a worker until no task is left; never returns."""
    code = 1
    try:
        errors = os.open(file.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        with file.open("wb", buffering=0) as results:
            while taken := os.read(queue, _NUMBER_BYTES):
                number = int.from_bytes(taken, "big")
                task = tasks[number]
                if not number or tasks[number - 1].name != task.name:
                    progress(shared, f"{shared.chip.arch}: {number + 1} of {len(tasks)}, {task.name}")
                results.write(pickle.dumps((number, None)))
                results.write(pickle.dumps((number, try_compile(shared, task.name, task.config, task.compile_it))))
        code = 0
    finally:
        os._exit(code)


def _results(file: Path) -> Iterator[tuple[int, CompiledConfig | None]]:
    """Each task number when it started, and again with its result."""
    if not file.exists():
        return
    with file.open("rb") as results:
        while True:
            try:
                yield pickle.load(results)  # noqa: S301 - our own fork wrote it
            except (EOFError, pickle.UnpicklingError):
                return


def _ending(code: int, errors: Path) -> str:
    """How a worker ended, and the first error it printed."""
    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    text = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    return "; ".join([ending, *[line.strip() for line in text.splitlines() if "error" in line.lower()][:1]])
