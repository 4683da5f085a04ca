"""Spreads files over processes, and survives the file that kills one."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import Facts, head_text
from rocsolid.lint.files import Found

_FEW_BYTES: Final = 400_000  # less is read here in the time a process needs to start
_SILENT_S: Final = 60.0  # a file that takes longer has hung its parser
_SOURCE: Final = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class Checked:
    """The facts of one file as text, ready for the cache."""

    shown: str
    head: str
    body: str


def check_files(files: Sequence[Found], jobs: int) -> Iterator[Checked]:
    """The facts of every file, in no particular order."""
    sizes = {file.shown: _size(file.path) for file in files}
    if jobs <= 1 or sum(sizes.values()) < _FEW_BYTES:
        yield from map(_here, files)
        return
    shares: list[list[Found]] = [[] for _ in range(min(jobs, len(files)))]
    loads = [0] * len(shares)
    for file in sorted(files, key=lambda f: -sizes[f.shown]):
        lightest = loads.index(min(loads))
        shares[lightest].append(file)
        loads[lightest] += sizes[file.shown] + 1000
    answers: queue.Queue[Checked | BaseException | None] = queue.Queue()
    threads = [threading.Thread(target=_share, args=(share, answers), daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    running = len(threads)
    while running:
        answer = answers.get()
        if answer is None:
            running -= 1
        elif isinstance(answer, BaseException):
            raise answer
        else:
            yield answer


def default_jobs() -> int:
    """As many as there are cores for us."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _here(file: Found) -> Checked:
    try:
        data = file.path.read_bytes()
    except OSError as refused:
        return _refused(file, refused.strerror or str(refused))
    facts = check_text(data, file=file.shown, module=file.module, package=file.package)
    return Checked(file.shown, head_text(facts), facts.body_text)


def _refused(file: Found, why: str) -> Checked:
    return Checked(file.shown, head_text(Facts(module=file.module, refused=why)), "")


def _share(files: Sequence[Found], answers: "queue.Queue[Checked | BaseException | None]") -> None:
    """Feed one process after another until every file of the share has an answer."""
    try:
        left = list(files)
        while left:
            done = _one_process(left, answers)
            if done < len(left):
                answers.put(_refused(left[done], "the parser died on it, or did not come to an end"))
                done += 1
            left = left[done:]
    except BaseException as broken:  # noqa: BLE001 - raised again in the thread that asked
        answers.put(broken)
    finally:
        answers.put(None)


def _one_process(files: Sequence[Found], answers: "queue.Queue[Checked | BaseException | None]") -> int:
    """How many files a process answered for before it ended, by itself or by our hand."""
    path = os.pathsep.join(filter(None, [_SOURCE, os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "rocsolid.lint.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"},
        text=True,
        encoding="utf-8",
    )
    done = 0
    watch = _Watch(process)
    with process, watch:
        assert process.stdin is not None  # noqa: S101 - as asked above
        assert process.stdout is not None  # noqa: S101
        names = [[str(f.path.absolute()), f.shown, f.module, f.package] for f in files]
        try:
            process.stdin.write(json.dumps(names))
            process.stdin.close()
        except BrokenPipeError:
            return 0
        for line in process.stdout:
            if not line.endswith("\n"):
                break
            watch.alive()
            answers.put(Checked(*json.loads(line)))
            done += 1
    return done


class _Watch:
    """Kills a process that has been silent for too long."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.heard = time.monotonic()
        self.over = threading.Event()

    def alive(self) -> None:
        """It has answered; begin to wait anew."""
        self.heard = time.monotonic()

    def _wait(self) -> None:
        while not self.over.wait(1.0):
            if time.monotonic() - self.heard > _SILENT_S:
                self.process.kill()
                return

    def __enter__(self) -> "_Watch":
        threading.Thread(target=self._wait, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
