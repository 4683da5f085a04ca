"""Compiles many configurations side by side, in forks of the child that loaded them.

A compiler may end its process. Here that costs a worker and the one configuration that it was at.
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

from rocsolid.dryrun.compile_kernels import Compiled, Compiling, compiled, progress
from rocsolid.model.dryrun import KernelConfig
from rocsolid.process.parent_death import die_with_parent

_MOST_WORKERS: Final = 8
_WIDTH: Final = 4  # bytes of a task's number


@dataclass(frozen=True, kw_only=True)
class Task:
    """One configuration that is still to be compiled."""

    name: str
    config: KernelConfig
    compile_it: Callable[[], Any]


def compile_all(shared: Compiling, tasks: Sequence[Task], workers: int = 0) -> list[Compiled]:
    """Every task, compiled or with the error that came instead, in the order given."""
    done: dict[int, Compiled] = {}
    most = workers or min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    with tempfile.TemporaryDirectory(prefix="workers-", dir=shared.journal.parent) as folder:
        while waiting := [number for number in range(len(tasks)) if number not in done]:
            done |= _round(shared, tasks, waiting, most, Path(folder))
    return [done[number] for number in range(len(tasks))]


def _round(
    shared: Compiling, tasks: Sequence[Task], waiting: Sequence[int], most: int, folder: Path
) -> dict[int, Compiled]:
    """Until every worker has ended; tasks that none came to are left for the next round."""
    reading, writing = os.pipe()
    parent, crew = os.getpid(), {}
    for number in range(min(most, len(waiting))):
        sys.stdout.flush()
        sys.stderr.flush()
        if not (pid := os.fork()):
            os.close(writing)
            die_with_parent(parent)
            _work(shared, tasks, reading, folder / f"{number}")
        crew[pid] = folder / f"{number}"
    os.close(reading)
    # Each takes a number when it is free; a pipe hands every number to one reader, and ends when all are taken.
    with os.fdopen(writing, "wb") as queue:
        queue.writelines(number.to_bytes(_WIDTH, "big") for number in waiting)
    done: dict[int, Compiled] = {}
    for pid, file in crew.items():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        begun = None
        for number, result in _results(file):
            begun = None if result else number
            if result:
                done[number] = result
        if begun is not None:
            error = f"the compiler ended its process: {_said(code, file.with_suffix('.err'))}"
            done[begun] = Compiled(config=replace(tasks[begun].config, error=error))
    return done


def _work(shared: Compiling, tasks: Sequence[Task], queue: int, file: Path) -> None:
    """What a worker does until there is nothing left; never returns."""
    code = 1
    try:
        errors = os.open(file.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        with file.open("wb", buffering=0) as results:
            while taken := os.read(queue, _WIDTH):
                number = int.from_bytes(taken, "big")
                task = tasks[number]
                if not number or tasks[number - 1].name != task.name:
                    progress(shared, f"{shared.chip.arch}: {number + 1} of {len(tasks)}, {task.name}")
                results.write(pickle.dumps((number, None)))
                results.write(pickle.dumps((number, compiled(shared, task.name, task.config, task.compile_it))))
        code = 0
    finally:
        os._exit(code)


def _results(file: Path) -> Iterator[tuple[int, Compiled | None]]:
    """Each number as it was begun, and again with its result."""
    if not file.exists():
        return
    with file.open("rb") as results:
        while True:
            try:
                yield pickle.load(results)  # noqa: S301 - our own fork wrote it
            except (EOFError, pickle.UnpicklingError):
                return


def _said(code: int, errors: Path) -> str:
    """How a worker ended, and the first error that it printed."""
    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    text = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    return "; ".join([ending, *[line.strip() for line in text.splitlines() if "error" in line.lower()][:1]])
