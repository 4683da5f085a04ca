"""Reads the traces of many ranks in several processes and compares the ranks."""

import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError
from rocsolid.measure.gc_pause import gc_paused
from rocsolid.model.trace import RankRow, Ranks, TraceFile
from rocsolid.process.run_command import module_command
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.read import read_trace
from rocsolid.trace.readers.c_scanner_build import build_if_worthwhile

_PATTERNS: Final = ("*.json", "*.json.gz", "*.db")


def trace_files_in(folder: Path) -> list[Path]:
    """Return the traces in a folder."""
    if not folder.is_dir():
        msg = f"{folder} is not a folder; --ranks needs the folder with one trace per rank"
        raise InputError(msg)
    found = sorted({file for pattern in _PATTERNS for file in folder.glob(pattern)})
    if not found:
        msg = f"{folder} has no traces (no file matches {', '.join(_PATTERNS)})"
        raise InputError(msg)
    return found


def analyze_ranks(files: Sequence[Path], engine: str = "processes") -> tuple[tuple[TraceFile, ...], tuple[str, ...]]:
    """Analyze all files. Return the results in the order of the files, and an error message for each unreadable file."""
    results = list(_with_ray(files) if engine == "ray" else _with_processes(files))
    traces = tuple(result for result in results if isinstance(result, TraceFile))
    return traces, tuple(result for result in results if isinstance(result, str))


def analyze_one(file: Path) -> TraceFile | str:
    """Analyze one file in this process. Return the error message when it is not a trace."""
    try:
        with gc_paused():
            return analyze_trace(file, read_trace(file, single_process=True))
    except InputError as error:
        return str(error)


def _with_processes(files: Sequence[Path]) -> Iterator[TraceFile | str]:
    """Analyze the files with one process per core, including this one. Each reads about the same number of bytes."""
    build_if_worthwhile(files)
    workers = min(os.cpu_count() or 1, len(files))
    shares: list[list[Path]] = [[] for _ in range(workers)]
    for file in sorted(files, key=_size, reverse=True):
        min(shares, key=lambda share: sum(map(_size, share))).append(file)
    own_share, *child_shares = shares
    results: dict[Path, TraceFile | str] = {}
    with tempfile.TemporaryDirectory(prefix="rocsolid-ranks-") as folder:
        children = [_start_child(share, Path(folder) / f"{index}.pickle") for index, share in enumerate(child_shares)]
        try:
            results.update((file, analyze_one(file)) for file in own_share)
            for child in children:
                results |= child.result()
        finally:
            for child in children:
                child.stop()
    yield from (results[file] for file in files)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


@dataclass(frozen=True, kw_only=True)
class _Child:
    """A child process that analyzes some of the files and writes the results to `out`."""

    out: Path
    wait: Callable[[], int | None]
    kill: Callable[[], None]

    def result(self) -> dict[Path, TraceFile | str]:
        code = self.wait()
        if code != 0:
            msg = f"a child process that reads ranks exited with {code}; its error output is above"
            raise CannotRunError(msg)
        results: dict[Path, TraceFile | str] = pickle.loads(self.out.read_bytes())  # noqa: S301 - our own private folder
        return results

    def stop(self) -> None:
        self.kill()  # does nothing when the process has ended
        self.wait()


def _start_child(files: Sequence[Path], out: Path) -> _Child:
    """Start a child process: a fork if this process has only one thread, otherwise a new interpreter.

    A fork does not have to import modules again. But if other threads hold locks, these stay locked in the fork forever.
    """
    if _has_one_thread():
        fork = multiprocessing.get_context("fork").Process(target=main, args=(str(out), *map(str, files)))
        fork.start()
        return _Child(out=out, wait=lambda: _exit_code(fork), kill=fork.kill)
    process = subprocess.Popen(  # noqa: S603 - this module
        module_command("rocsolid.trace.ranks", str(out), *map(str, files)),
        stdout=subprocess.DEVNULL,
    )
    return _Child(out=out, wait=process.wait, kill=process.kill)


def main(out: str, *files: str) -> None:
    """In the child process: analyze the files one after another and write the results."""
    Path(out).write_bytes(pickle.dumps({Path(file): analyze_one(Path(file)) for file in files}))


def _exit_code(process: "multiprocessing.process.BaseProcess") -> int | None:
    process.join()
    return process.exitcode


def _has_one_thread() -> bool:
    """Return whether this process has one thread, also counting threads of libraries; False where /proc is missing."""
    tasks = Path("/proc/self/task")
    return tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _with_ray(files: Sequence[Path]) -> Iterator[TraceFile | str]:
    """Analyze each file in a Ray task. If no Ray cluster is running, one is started and shut down at the end."""
    try:
        import ray
    except ImportError as missing:
        raise MissingExtraError(feature="--engine ray", extra="ray") from missing
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote: Callable[..., object] = ray.remote(analyze_one).remote
        # Ray workers run in other folders, so they get absolute paths; the results keep the names that were given.
        results = ray.get([remote(file.absolute()) for file in files])
    finally:
        if started_here:
            ray.shutdown()
    for file, result in zip(files, results, strict=True):
        if isinstance(result, TraceFile):
            yield replace(result, file=str(file))
        else:
            yield result.replace(str(file.absolute()), str(file))


def compare_ranks(files: Sequence[TraceFile]) -> Ranks:
    """Compare the busiest device of each rank, slowest first. The rank of a file without one is its index in `files`."""
    rows = []
    for index, file in enumerate(files):
        if not file.devices:
            continue
        device = max(file.devices, key=lambda device: device.busy_ns)
        collectives = device.collectives
        rows.append(
            RankRow(
                rank=file.rank if file.rank is not None else index,
                file=file.file,
                device=device.device,
                span_ns=device.span_ns,
                compute_ns=device.busy_ns - collectives.exposed_ns,
                communication_ns=collectives.time_ns,
                exposed_ns=collectives.exposed_ns,
                idle_ns=device.idle_ns,
            )
        )
    return Ranks(rows=tuple(sorted(rows, key=lambda row: -row.compute_ns)))


if __name__ == "__main__":
    main(*sys.argv[1:])
