"""Distributes files over worker processes. A file that crashes or hangs its worker is reported; the other files are still checked."""

import json
import os
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from rocsolid.lint import fact_cache
from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import FileFacts, summary_json
from rocsolid.lint.files import SourceFile
from rocsolid.process.run_command import module_command

_MIN_BYTES_FOR_WORKERS: Final = 400_000  # less is checked in this process, faster than a worker starts
_MAX_SILENCE_S: Final = 60.0  # a worker that writes nothing for longer is considered hung
_FILE_OVERHEAD_BYTES: Final = 1000  # the cost of opening a file, as bytes of source
_PORTIONS_PER_WORKER: Final = 24


@dataclass(frozen=True)
class CheckedFile:
    """The two parts of the facts of one file as JSON text, ready for the cache."""

    display_path: str
    key: str  # for the cache; empty if the file cannot be read
    summary: str
    symbols: str


def check_files(files: Sequence[SourceFile], jobs: int) -> Iterator[CheckedFile]:
    """Yield the facts of every file, in no particular order."""
    sizes = {file.display_path: _size(file.path) for file in files}
    if jobs <= 1 or sum(sizes.values()) < _MIN_BYTES_FOR_WORKERS:
        yield from map(_check_in_this_process, files)
        return
    portions = deque(_portions(files, sizes, jobs * _PORTIONS_PER_WORKER))
    results: queue.Queue[CheckedFile | BaseException | None] = queue.Queue()
    threads = [
        threading.Thread(target=_check_portions, args=(portions, results), daemon=True)
        for _ in range(min(jobs, len(files)))
    ]
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


def _portions(files: Sequence[SourceFile], sizes: Mapping[str, int], count: int) -> Iterator[list[SourceFile]]:
    """Split the files into portions of about the same size, the largest files first, so that all workers end at the same time."""
    costs = {path: size + _FILE_OVERHEAD_BYTES for path, size in sizes.items()}
    full = sum(costs.values()) / count
    portion: list[SourceFile] = []
    cost = 0
    for file in sorted(files, key=lambda f: -costs[f.display_path]):
        portion.append(file)
        cost += costs[file.display_path]
        if cost >= full:
            yield portion
            portion, cost = [], 0
    if portion:
        yield portion


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
    key = fact_cache.cache_key(data, file.module)
    return CheckedFile(file.display_path, key, summary_json(facts), facts.symbols_json)


def _failed(file: SourceFile, reason: str) -> CheckedFile:
    try:
        key = fact_cache.cache_key(file.path.read_bytes(), file.module)
    except OSError:
        key = ""
    return CheckedFile(file.display_path, key, summary_json(FileFacts(module=file.module, error=reason)), "")


def _check_portions(
    portions: "deque[list[SourceFile]]", results: "queue.Queue[CheckedFile | BaseException | None]"
) -> None:
    """Check portions until none is left; after a crash or hang, start another worker for the rest."""
    try:
        remaining = _next_portion(portions)
        while remaining:
            remaining = _run_worker(remaining, portions, results)
            if remaining:
                results.put(_failed(remaining[0], "the parser crashed or did not finish"))
                remaining = remaining[1:] or _next_portion(portions)
    except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
        results.put(error)
    finally:
        results.put(None)


def _next_portion(portions: "deque[list[SourceFile]]") -> list[SourceFile]:
    try:
        return portions.popleft()
    except IndexError:
        return []


def _run_worker(
    files: list[SourceFile],
    portions: "deque[list[SourceFile]]",
    results: "queue.Queue[CheckedFile | BaseException | None]",
) -> list[SourceFile]:
    """Run one worker on these files and on further portions. Return what it had to check when it ended or was killed."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        module_command("rocsolid.lint.worker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUTF8": "1"},
        text=True,
        encoding="utf-8",
    )
    watchdog = _Watchdog(process)
    with process, watchdog:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        while files:
            rows = [[str(f.path.absolute()), f.display_path, f.module, f.package] for f in files]
            try:
                process.stdin.write(json.dumps(rows) + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                break
            for line in islice(process.stdout, len(files)):
                if not line.endswith("\n"):
                    break
                watchdog.reset()
                display_path, *parts = line.rstrip("\n").split("\t")
                results.put(CheckedFile(json.loads(display_path), *parts))
                files = files[1:]
            if files:
                break
            files = _next_portion(portions)
    return files


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
