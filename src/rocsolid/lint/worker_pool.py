"""Distributes files over worker processes. A file that crashes or hangs its worker is reported; the other files are still checked."""

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import FileFacts, summary_json
from rocsolid.lint.files import SourceFile
from rocsolid.process.run_command import module_command

_MIN_BYTES_FOR_WORKERS: Final = 400_000  # less is checked in this process, faster than a worker starts
_MAX_SILENCE_S: Final = 60.0  # a worker that writes nothing for longer is considered hung
_FILE_OVERHEAD_BYTES: Final = 1000  # the cost of opening a file, as bytes of source


@dataclass(frozen=True)
class CheckedFile:
    """The two parts of the facts of one file as JSON text, ready for the cache."""

    display_path: str
    summary: str
    symbols: str


def check_files(files: Sequence[SourceFile], jobs: int) -> Iterator[CheckedFile]:
    """Yield the facts of every file, in no particular order."""
    sizes = {file.display_path: _size(file.path) for file in files}
    if jobs <= 1 or sum(sizes.values()) < _MIN_BYTES_FOR_WORKERS:
        yield from map(_check_in_this_process, files)
        return
    shares: list[list[SourceFile]] = [[] for _ in range(min(jobs, len(files)))]
    loads = [0] * len(shares)
    for file in sorted(files, key=lambda f: -sizes[f.display_path]):
        smallest = loads.index(min(loads))
        shares[smallest].append(file)
        loads[smallest] += sizes[file.display_path] + _FILE_OVERHEAD_BYTES
    results: queue.Queue[CheckedFile | BaseException | None] = queue.Queue()
    threads = [threading.Thread(target=_check_share, args=(share, results), daemon=True) for share in shares]
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


def _check_in_this_process(file: SourceFile) -> CheckedFile:
    try:
        data = file.path.read_bytes()
    except OSError as error:
        return _failed(file, error.strerror or str(error))
    facts = check_text(data, file=file.display_path, module=file.module, package=file.package)
    return CheckedFile(file.display_path, summary_json(facts), facts.symbols_json)


def _failed(file: SourceFile, reason: str) -> CheckedFile:
    return CheckedFile(file.display_path, summary_json(FileFacts(module=file.module, error=reason)), "")


def _check_share(files: Sequence[SourceFile], results: "queue.Queue[CheckedFile | BaseException | None]") -> None:
    """Check a share of the files; after a crash or hang, start another worker for the rest."""
    try:
        remaining = list(files)
        while remaining:
            finished = _run_worker(remaining, results)
            if finished < len(remaining):
                results.put(_failed(remaining[finished], "the parser crashed or did not finish"))
                finished += 1
            remaining = remaining[finished:]
    except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
        results.put(error)
    finally:
        results.put(None)


def _run_worker(files: Sequence[SourceFile], results: "queue.Queue[CheckedFile | BaseException | None]") -> int:
    """Run one worker and return how many files it finished before it ended or was killed."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        module_command("rocsolid.lint.worker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUTF8": "1"},
        text=True,
        encoding="utf-8",
    )
    finished = 0
    watchdog = _Watchdog(process)
    with process, watchdog:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        rows = [[str(f.path.absolute()), f.display_path, f.module, f.package] for f in files]
        try:
            process.stdin.write(json.dumps(rows))
            process.stdin.close()
        except BrokenPipeError:
            return 0
        for line in process.stdout:
            if not line.endswith("\n"):
                break
            watchdog.reset()
            results.put(CheckedFile(*json.loads(line)))
            finished += 1
    return finished


class _Watchdog:
    """Kills a worker that writes nothing for `_MAX_SILENCE_S`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.last_output = time.monotonic()
        self.stop_event = threading.Event()

    def reset(self) -> None:
        """Restart the time limit, because the worker wrote a line."""
        self.last_output = time.monotonic()

    def _watch(self) -> None:
        while not self.stop_event.wait(1.0):
            if time.monotonic() - self.last_output > _MAX_SILENCE_S:
                self.process.kill()
                return

    def __enter__(self) -> "_Watchdog":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_event.set()
