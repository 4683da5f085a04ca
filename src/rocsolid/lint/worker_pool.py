"""Distributes files over worker processes; a file that crashes or hangs a worker is reported and the rest continues."""

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
from rocsolid.lint.facts import FileFacts, head_text
from rocsolid.lint.files import SourceFile

_FEW_BYTES: Final = 400_000  # less is checked in this process, faster than a worker starts
_SILENT_S: Final = 60.0  # a worker without output for longer is hanging
_SOURCE: Final = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class CheckedFile:
    """The facts of one file as text, ready for the cache."""

    shown: str
    head: str
    body: str


def check_files(files: Sequence[SourceFile], jobs: int) -> Iterator[CheckedFile]:
    """The facts of every file, in no particular order."""
    sizes = {file.shown: _size(file.path) for file in files}
    if jobs <= 1 or sum(sizes.values()) < _FEW_BYTES:
        yield from map(_check_here, files)
        return
    shares: list[list[SourceFile]] = [[] for _ in range(min(jobs, len(files)))]
    loads = [0] * len(shares)
    for file in sorted(files, key=lambda f: -sizes[f.shown]):
        lightest = loads.index(min(loads))
        shares[lightest].append(file)
        loads[lightest] += sizes[file.shown] + 1000
    results: queue.Queue[CheckedFile | BaseException | None] = queue.Queue()
    threads = [threading.Thread(target=_share, args=(share, results), daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    running = len(threads)
    while running:
        result = results.get()
        if result is None:
            running -= 1
        elif isinstance(result, BaseException):
            raise result
        else:
            yield result


def default_jobs() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_here(file: SourceFile) -> CheckedFile:
    try:
        data = file.path.read_bytes()
    except OSError as error:
        return _failed(file, error.strerror or str(error))
    facts = check_text(data, file=file.shown, module=file.module, package=file.package)
    return CheckedFile(file.shown, head_text(facts), facts.body_text)


def _failed(file: SourceFile, why: str) -> CheckedFile:
    return CheckedFile(file.shown, head_text(FileFacts(module=file.module, error=why)), "")


def _share(files: Sequence[SourceFile], results: "queue.Queue[CheckedFile | BaseException | None]") -> None:
    """Check a share of the files; after a crash or hang, start another worker for the rest."""
    try:
        left = list(files)
        while left:
            done = _one_process(left, results)
            if done < len(left):
                results.put(_failed(left[done], "the parser crashed or did not finish"))
                done += 1
            left = left[done:]
    except BaseException as broken:  # noqa: BLE001 - raised again in the calling thread
        results.put(broken)
    finally:
        results.put(None)


def _one_process(files: Sequence[SourceFile], results: "queue.Queue[CheckedFile | BaseException | None]") -> int:
    """Run one worker; returns how many files it finished before it ended or was killed."""
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
    watch = _Watchdog(process)
    with process, watch:
        assert process.stdin is not None  # noqa: S101 - for the type checker
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
            watch.reset()
            results.put(CheckedFile(*json.loads(line)))
            done += 1
    return done


class _Watchdog:
    """Kills a worker that writes nothing for too long."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.last_output = time.monotonic()
        self.over = threading.Event()

    def reset(self) -> None:
        """The worker wrote something; start to wait again."""
        self.last_output = time.monotonic()

    def _wait(self) -> None:
        while not self.over.wait(1.0):
            if time.monotonic() - self.last_output > _SILENT_S:
                self.process.kill()
                return

    def __enter__(self) -> "_Watchdog":
        threading.Thread(target=self._wait, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
