"""Reads only the Python functions of a trace. This is a second pass; the first pass only counts them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec import Raw, Struct

from rocsolid.measure.gc_pause import gc_paused
from rocsolid.trace.columns import Column, TraceColumns
from rocsolid.trace.readers.bytestream import ByteStream
from rocsolid.trace.readers.event_decoder import PYTHON_FUNCTION
from rocsolid.trace.readers.exact_times import parse_durations, parse_timestamps
from rocsolid.trace.readers.json_events import (
    EventSeparator,
    detect_separator,
    find_first_event,
    last_event_boundary,
    recover_events,
)

_DETECTION_BYTES: Final = 1 << 20
_MAX_EVENT_BYTES: Final = 16 << 20


class Frame(Struct, gc=False):
    """An event of the trace. If `cat` is `PYTHON_FUNCTION`, it is a call of a Python function."""

    ts: Raw = Raw(b"")
    dur: int | float | None = None
    name: str = ""
    cat: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Calls of Python functions."""

    start: Column
    end: Column
    names: list[str]
    threads: list[str]  # "pid/tid", as in `TraceColumns.threads`


_DECODER: Final = msgspec.json.Decoder(list[Frame])


def has_frames(columns: TraceColumns) -> bool:
    """Return whether the trace contains Python functions."""
    return columns.producer == "kineto" and bool(columns.unused_events.get(PYTHON_FUNCTION))


def read_frames(file: Path) -> Iterator[Frames]:
    """Read the frames chunk by chunk. Broken events are skipped; the first pass has counted them."""
    with gc_paused():
        for text, separator in _chunks(file):
            frames = [frame for frame in _decode(text, separator) if frame.cat == PYTHON_FUNCTION]
            if frames:
                yield _to_columns(frames)


def _to_columns(frames: list[Frame]) -> Frames:
    start, good = parse_timestamps([frame.ts for frame in frames])
    duration, good_duration = parse_durations([frame.dur for frame in frames])
    good &= good_duration
    if not good.all():
        frames = [frame for frame, valid in zip(frames, good, strict=True) if valid]
        start, duration = start[good], duration[good]
    return Frames(
        start=start,
        end=start + duration,
        names=[frame.name for frame in frames],
        threads=[f"{frame.pid}/{frame.tid}" for frame in frames],
    )


def _chunks(file: Path) -> Iterator[tuple[bytes, EventSeparator]]:
    """Yield text that begins and ends with an event. The last chunk also contains the text after the list of events."""
    chunks = iter(ByteStream(file))
    held, start = b"", None
    for chunk in chunks:
        start = find_first_event(held + chunk, len(held)) if start is None else start
        held += chunk
        if start is not None and len(held) - start >= _DETECTION_BYTES:
            break
    held = held[start or 0 :]
    separator = detect_separator(held)
    for chunk in chunks:
        boundary = last_event_boundary(held, separator)
        if boundary is not None:
            yield held[: boundary[0]], separator
            held = held[boundary[1] :]
        elif len(held) > _MAX_EVENT_BYTES:  # the first pass has reported that it is skipped
            held = b""
        held += chunk
    yield held, separator


def _decode(text: bytes, separator: EventSeparator) -> list[Frame]:
    """Return all events of a chunk; if it is damaged, the complete ones."""
    try:
        return _DECODER.decode(b"[" + text + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found: list[Frame] = []
    for part in separator.split(text):
        try:
            found += _DECODER.decode(b"[" + part + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found += _recover(part)
    return found


def _recover(text: bytes) -> list[Frame]:
    found: list[Frame] = []
    for event in recover_events(text, last=True).events:
        try:
            found += _DECODER.decode(b"[" + event + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return found


def longest_mask(durations: Column, limit: int) -> Column:
    """Return a mask of the longest events, at most `limit`. Events that enclose a selected event are selected, too."""
    if len(durations) <= limit:
        return np.ones(len(durations), dtype=np.bool_)
    threshold = np.partition(durations, len(durations) - limit)[len(durations) - limit]
    selected: Column = durations >= threshold
    if int(selected.sum()) > limit:  # too many events with the same duration
        selected = durations > threshold
    return selected
