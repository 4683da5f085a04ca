"""Many ranks: the files are shared out among processes, and their answers set side by side."""

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
from rocsolid.model.trace import RankRow, Ranks, TraceFile

_TRACES: Final = ("*.json", "*.json.gz", "*.db")


def files_in(folder: Path) -> list[Path]:
    """The traces in a folder."""
    if not folder.is_dir():
        msg = f"{folder} is no folder; --ranks wants the folder that holds one trace for each rank"
        raise InputError(msg)
    found = sorted({file for pattern in _TRACES for file in folder.glob(pattern)})
    if not found:
        msg = f"{folder} holds no trace (looked for {', '.join(_TRACES)})"
        raise InputError(msg)
    return found


def answer_all(files: Sequence[Path], engine: str = "processes") -> tuple[tuple[TraceFile, ...], tuple[str, ...]]:
    """The answers, in the order of the files, and what could not be read at all, a line each."""
    results = list(_over_ray(files) if engine == "ray" else _over_processes(files))
    answers = tuple(result for result in results if isinstance(result, TraceFile))
    return answers, tuple(result for result in results if isinstance(result, str))


def _over_processes(files: Sequence[Path]) -> Iterator[TraceFile | str]:
    """As many processes as cores, ourselves among them, each with about as many bytes to read."""
    from rocsolid.trace.c_scanner_build import build_for
    from rocsolid.trace.rank_worker import answer_one

    build_for(files)
    workers = min(os.cpu_count() or 1, len(files))
    heaps: list[list[Path]] = [[] for _ in range(workers)]
    for file in sorted(files, key=_size, reverse=True):
        min(heaps, key=lambda heap: sum(map(_size, heap))).append(file)
    own, *others = heaps
    found: dict[Path, TraceFile | str] = {}
    with tempfile.TemporaryDirectory(prefix="rocsolid-ranks-") as folder:
        children = [_start(heap, Path(folder) / f"{number}.pickle") for number, heap in enumerate(others)]
        try:
            found.update((file, answer_one(file)) for file in own)
            for child in children:
                found |= child.finished()
        finally:
            for child in children:
                child.stop()
    yield from (found[file] for file in files)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


@dataclass(frozen=True, kw_only=True)
class _Child:
    """A process that reads some of the files, and where it leaves its answers."""

    out: Path
    wait: Callable[[], int | None]
    kill: Callable[[], None]

    def finished(self) -> dict[Path, TraceFile | str]:
        code = self.wait()
        if code != 0:
            msg = f"a process that read ranks ended with {code}; what it had to say stands above"
            raise CannotRunError(msg)
        found: dict[Path, TraceFile | str] = pickle.loads(self.out.read_bytes())  # noqa: S301 - in a folder of ours alone
        return found

    def stop(self) -> None:
        self.kill()  # does nothing to one that has ended
        self.wait()


def _start(files: Sequence[Path], out: Path) -> _Child:
    """A copy of ourselves while we are alone, with all that is imported; otherwise a process that starts anew.

    A copy would take over what our other threads hold: locks that nobody there will ever release.
    """
    from rocsolid.trace.rank_worker import main

    if _one_thread():
        copy = multiprocessing.get_context("fork").Process(target=main, args=(str(out), *map(str, files)))
        copy.start()
        return _Child(out=out, wait=lambda: _joined(copy), kill=copy.kill)
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    anew = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "rocsolid.trace.rank_worker", str(out), *map(str, files)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    return _Child(out=out, wait=anew.wait, kill=anew.kill)


def _joined(copy: "multiprocessing.process.BaseProcess") -> int | None:
    copy.join()
    return copy.exitcode


def _one_thread() -> bool:
    """Threads that Python does not know of count too; where the system does not list them, there may be some."""
    tasks = Path("/proc/self/task")
    return tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _over_ray(files: Sequence[Path]) -> Iterator[TraceFile | str]:
    """One task for each file, wherever the cluster has room; a cluster that we started ends with the work."""
    try:
        import ray
    except ImportError as missing:
        raise MissingExtraError(feature="--engine ray", extra="ray") from missing
    from rocsolid.trace.rank_worker import answer_one

    ours = not ray.is_initialized()
    if ours:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote: Callable[..., object] = ray.remote(answer_one).remote
        # Workers stand in folders of their own, so they get whole paths; the answers keep the names that were given.
        found = ray.get([remote(file.absolute()) for file in files])
    finally:
        if ours:
            ray.shutdown()
    for file, result in zip(files, found, strict=True):
        if isinstance(result, TraceFile):
            yield replace(result, file=str(file))
        else:
            yield result.replace(str(file.absolute()), str(file))


def side_by_side(files: Sequence[TraceFile]) -> Ranks:
    """The busiest device of each rank; a file that names no rank is taken in the order of names."""
    rows = []
    for number, file in enumerate(files):
        if not file.devices:
            continue
        device = max(file.devices, key=lambda d: d.busy_ns)
        talk = device.collectives
        rows.append(
            RankRow(
                rank=file.rank if file.rank is not None else number,
                file=file.file,
                device=device.device,
                span_ns=device.span_ns,
                compute_ns=device.busy_ns - talk.exposed_ns,
                communication_ns=talk.time_ns,
                exposed_ns=talk.exposed_ns,
                idle_ns=device.idle_ns,
            )
        )
    return Ranks(rows=tuple(sorted(rows, key=lambda row: -row.compute_ns)))
