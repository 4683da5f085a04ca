"""A second pass over a trace, for its Python functions alone; the first counts them and sets them aside."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec import Raw, Struct

from rocsolid.measure.gc_pause import gc_disabled
from rocsolid.trace.bytestream import ByteStream
from rocsolid.trace.columns import Column, Columns
from rocsolid.trace.event_columns import FUNCTIONS
from rocsolid.trace.exact_times import durations, nanoseconds
from rocsolid.trace.json_layout import Layout, find_events, last_border, sniff
from rocsolid.trace.salvage import salvage

_HEAD: Final = 1 << 20
_LONGEST_EVENT: Final = 16 << 20


class Frame(Struct, gc=False):
    """A Python function, as the profiler saw it; everything else in the trace decodes to one of another category."""

    ts: Raw = Raw(b"")
    dur: int | float | None = None
    name: str = ""
    cat: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Some calls of Python functions."""

    start: Column
    end: Column
    names: list[str]
    threads: list[str]  # as `Columns.threads` spells them


_DECODER: Final = msgspec.json.Decoder(list[Frame])


def has_frames(columns: Columns) -> bool:
    """Whether a second pass would find any."""
    return columns.producer == "kineto" and bool(columns.set_aside.get(FUNCTIONS))


def read_frames(file: Path) -> Iterator[Frames]:
    """Piece by piece; what is broken was counted in the first pass, and is left out here too."""
    with gc_disabled():
        for text, layout in _pieces(file):
            frames = [frame for frame in _decoded(text, layout) if frame.cat == FUNCTIONS]
            if frames:
                yield _columns(frames)


def _columns(frames: list[Frame]) -> Frames:
    start, good = nanoseconds([frame.ts for frame in frames])
    length, lasting = durations([frame.dur for frame in frames])
    good &= lasting
    if not good.all():
        frames = [frame for frame, kept in zip(frames, good, strict=True) if kept]
        start, length = start[good], length[good]
    return Frames(
        start=start,
        end=start + length,
        names=[frame.name for frame in frames],
        threads=[f"{frame.pid}/{frame.tid}" for frame in frames],
    )


def _pieces(file: Path) -> Iterator[tuple[bytes, Layout]]:
    """Text that begins and ends with an event; the last one holds what follows the list too."""
    pieces = iter(ByteStream(file))
    held, start = b"", None
    for piece in pieces:
        start = find_events(held + piece, len(held)) if start is None else start
        held += piece
        if start is not None and len(held) - start >= _HEAD:
            break
    held = held[start or 0 :]
    layout = sniff(held)
    for piece in pieces:
        border = last_border(held, layout)
        if border is not None:
            yield held[: border[0]], layout
            held = held[border[1] :]
        elif len(held) > _LONGEST_EVENT:  # the first pass gave it up too, and said so
            held = b""
        held += piece
    yield held, layout


def _decoded(text: bytes, layout: Layout) -> list[Frame]:
    """All events of a piece; of one in which something is broken, those that stand alone."""
    try:
        return _DECODER.decode(b"[" + text + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found: list[Frame] = []
    for part in layout.split(text):
        try:
            found += _DECODER.decode(b"[" + part + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            found += _alone(part)
    return found


def _alone(text: bytes) -> list[Frame]:
    found: list[Frame] = []
    for event in salvage(text, last=True).events:
        try:
            found += _DECODER.decode(b"[" + event + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found


def longest(length: Column, most: int) -> Column:
    """Which to keep of too many: the longest, so that whatever encloses a kept one is kept too."""
    if len(length) <= most:
        return np.ones(len(length), dtype=np.bool_)
    least = np.partition(length, len(length) - most)[len(length) - most]
    kept: Column = length >= least
    if int(kept.sum()) > most:  # too many of the same length
        kept = length > least
    return kept
