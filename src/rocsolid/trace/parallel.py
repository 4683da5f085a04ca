"""One large file, read by two processes: each takes a half that begins at a border between events."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rocsolid.errors import CannotRunError
from rocsolid.trace.bytestream import is_gzip
from rocsolid.trace.c_scanner_build import library
from rocsolid.trace.column_files import join, load
from rocsolid.trace.columns import Columns
from rocsolid.trace.json_layout import Layout, find_events, first_border, metadata, sniff
from rocsolid.trace.kineto import Share, read_kineto

# Below this a second process costs more than it saves: it takes a third of a second to start. With the scanner in C one
# process reads four times as much in that time.
_WORTH_IT: Final = 96 << 20
_WORTH_IT_SCANNED: Final = 384 << 20
_WINDOW: Final = 8 << 20


def read_in_parallel(file: Path) -> Columns:
    """As `read_kineto`, with two processes where that pays: large, plain, and a core to spare."""
    least = _WORTH_IT_SCANNED if library() else _WORTH_IT
    if (os.cpu_count() or 1) < 2 or is_gzip(file) or file.stat().st_size < least:  # noqa: PLR2004 - two halves
        return read_kineto(file)
    halves = _halves(file)
    if halves is None:
        return read_kineto(file)
    head, first, second = halves
    with tempfile.TemporaryDirectory(prefix="rocsolid-trace-") as folder:
        out = Path(folder)
        child = _start(file, second, out)
        try:
            columns = read_kineto(file, first)
            _, complaint = child.communicate()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        if child.returncode != 0:
            msg = f"the second process that read {file} ended with {child.returncode}: {complaint.decode()[-300:]}"
            raise CannotRunError(msg)
        joined = join([columns, load(out)])
    return Columns(**{**vars(joined), "metadata": {**head, **joined.metadata}})


def _halves(file: Path) -> tuple[dict[str, object], Share, Share] | None:
    size = file.stat().st_size
    with file.open("rb") as source:
        text = source.read(_WINDOW)
        start = find_events(text)
        if start is None:
            return None
        layout = sniff(text[start:])
        source.seek(size // 2)
        border = first_border(source.read(_WINDOW), layout)
    if border is None:
        return None
    middle = size // 2 + border
    # The first half ends behind an event, without the comma that follows it.
    end = middle - len(layout.between)
    return (
        metadata(text[:start], b""),
        Share(first=start, last=end, layout=layout, ends=False),
        Share(first=middle, last=None, layout=layout, ends=True),
    )


def _start(file: Path, share: Share, out: Path) -> "subprocess.Popen[bytes]":
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    layout = json.dumps({name: value.decode("latin-1") for name, value in asdict(share.layout).items()})
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "rocsolid.trace.parallel_worker", str(file), str(share.first), layout, str(out)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def share_of(first: str, layout: str) -> Share:
    """What `_start` wrote on the command line."""
    parts = {name: value.encode("latin-1") for name, value in json.loads(layout).items()}
    return Share(first=int(first), last=None, layout=Layout(**parts), ends=True)
