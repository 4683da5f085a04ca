"""Many ranks: the files are shared out among processes, and their answers set side by side.

This process only waits for the others, so it imports nothing that is slow.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError
from rocsolid.model.codec import decode
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
    """As many processes as cores, each with about as many bytes to read."""
    workers = min(os.cpu_count() or 1, len(files))
    if workers < 2:  # noqa: PLR2004 - one is ourselves
        from rocsolid.trace.rank_worker import answer_one

        yield from map(answer_one, files)
        return
    heaps: list[list[Path]] = [[] for _ in range(workers)]
    for file in sorted(files, key=_size, reverse=True):
        min(heaps, key=lambda heap: sum(map(_size, heap))).append(file)
    with tempfile.TemporaryDirectory(prefix="rocsolid-ranks-") as folder:
        outs = [Path(folder) / f"{number}.json" for number in range(workers)]
        children = [_start(heap, out) for heap, out in zip(heaps, outs, strict=True)]
        found: dict[str, TraceFile | str] = {}
        try:
            for child, out in zip(children, outs, strict=True):
                found |= _finished(child, out)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
    yield from (found[str(file)] for file in files)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _start(files: Sequence[Path], out: Path) -> "subprocess.Popen[bytes]":
    """A process of our own, not a fork: a fork would take over whatever threads and devices the caller has."""
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "rocsolid.trace.rank_worker", str(out), *map(str, files)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _finished(child: "subprocess.Popen[bytes]", out: Path) -> dict[str, TraceFile | str]:
    _, complaint = child.communicate()
    if child.returncode != 0:
        msg = f"a process that read ranks ended with {child.returncode}: {complaint.decode()[-300:]}"
        raise CannotRunError(msg)
    stored = json.loads(out.read_text(encoding="utf-8"))
    return {
        name: result if isinstance(result, str) else decode(TraceFile, result, name) for name, result in stored.items()
    }


def _over_ray(files: Sequence[Path]) -> Iterator[TraceFile | str]:
    try:
        import ray
    except ImportError as missing:
        raise MissingExtraError(feature="--engine ray", extra="ray") from missing
    from rocsolid.trace.rank_worker import answer_one

    ray.init(ignore_reinit_error=True, log_to_driver=False)
    remote: Callable[..., object] = ray.remote(answer_one).remote
    yield from ray.get([remote(file) for file in files])


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
