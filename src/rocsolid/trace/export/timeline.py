"""Packs the events of a trace for the timeline on the HTML page, so that a browser can load a million of them."""

import base64
import gzip
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.model.trace import Category
from rocsolid.model.trace_view import Timeline, TimelineLane
from rocsolid.trace.analysis.categories import category
from rocsolid.trace.columns import Column, EventKind, TraceColumns, thread_name

MAX_EVENTS: Final = 1_000_000
_MAX_DEPTH: Final = 14
_MAX_UINT32: Final = 2**32 - 1
_CATEGORIES: Final = tuple(Category)
_HOST_TABLES: Final = ("annotations", "ops", "calls")


@dataclass(frozen=True, kw_only=True)
class _LaneEvents:
    """The events of one lane before they are packed."""

    label: str
    kind: str
    depth: int
    start: Column
    end: Column
    name: Column


def build_timeline(columns: TraceColumns) -> Timeline:
    """Lanes for the streams of each device, then for each thread one lane per nesting depth."""
    lanes = [*_device_lanes(columns), *_host_lanes(columns)]
    if not lanes:
        return Timeline(data="", unit_ns=1, span_ns=0, origin_ns=0, names=(), categories=(), lanes=())
    kept, dropped = _drop_shortest(lanes)
    origin = min(int(lane.start[0]) for lane in kept if len(lane.start))
    span = max(int(lane.end.max()) for lane in kept if len(lane.start)) - origin
    unit = max(1, -(-span // _MAX_UINT32))
    parts: list[Column] = []
    known: dict[int, int] = {}
    for lane in kept:
        start = (lane.start - origin) // unit
        parts.append(np.diff(start, prepend=0).astype("<u4"))
        parts.append(np.minimum(-(-(lane.end - lane.start) // unit), _MAX_UINT32).astype("<u4"))
        numbers, inverse = np.unique(lane.name, return_inverse=True)
        own = np.array([known.setdefault(int(n), len(known)) for n in numbers], dtype="<u4")
        parts.append(own[inverse])
    names = tuple(columns.names[n] for n in known)
    packed = gzip.compress(b"".join(part.tobytes() for part in parts), 6, mtime=0)
    return Timeline(
        data=base64.b64encode(packed).decode(),
        unit_ns=unit,
        span_ns=span,
        origin_ns=origin,
        names=names,
        categories=tuple(_CATEGORIES.index(category(name)) for name in names),
        lanes=tuple(TimelineLane(label=e.label, kind=e.kind, depth=e.depth, count=len(e.start)) for e in kept),
        dropped_events=dropped,
        device_start_ns={
            str(number): int(columns.device.start[columns.device.device == number].min()) - origin
            for number in np.unique(columns.device.device)
        },
    )


def _device_lanes(columns: TraceColumns) -> list[_LaneEvents]:
    device = columns.device
    pairs = np.stack([device.device.astype(np.int64), device.stream])
    found = []
    for number, stream in np.unique(pairs, axis=1).T.tolist():
        mine = np.flatnonzero((device.device == number) & (device.stream == stream))
        mine = mine[np.argsort(device.start[mine], kind="stable")]
        label = f"device {number} · stream {stream}"
        kind = "device" if (device.kind[mine] == EventKind.KERNEL).any() else "copy"
        found.append(
            _LaneEvents(
                label=label, kind=kind, depth=0, start=device.start[mine], end=device.end[mine], name=device.name[mine]
            )
        )
    return sorted(found, key=lambda lane: -len(lane.start))


def _host_lanes(columns: TraceColumns) -> list[_LaneEvents]:
    tables = [getattr(columns, name) for name in _HOST_TABLES]
    start, end, name, thread = (
        np.concatenate([getattr(table, field) for table in tables]) for field in ("start", "end", "name", "thread")
    )
    found = []
    for number in np.unique(thread):
        mine = np.flatnonzero(thread == number)
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        depth = _depths(start[mine], end[mine])
        for level in range(min(int(depth.max(initial=0)) + 1, _MAX_DEPTH)):
            here = mine[depth == level]
            found.append(
                _LaneEvents(
                    label=thread_name(columns, number) if level == 0 else "",
                    kind="host",
                    depth=level,
                    start=start[here],
                    end=end[here],
                    name=name[here],
                )
            )
    return found


def _depths(start: Column, end: Column) -> Column:
    """The nesting depth of each event. Events are sorted by start, the longer first."""
    depths: list[int] = []
    open_until: list[int] = []
    for begin, until in zip(start.tolist(), end.tolist(), strict=True):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        depths.append(len(open_until))
        open_until.append(until)
    return np.array(depths, dtype=np.int64)


def _drop_shortest(lanes: list[_LaneEvents]) -> tuple[list[_LaneEvents], int]:
    """The longest events, and how many were dropped, when there are more than `MAX_EVENTS`."""
    total = sum(len(lane.start) for lane in lanes)
    if total <= MAX_EVENTS:
        return lanes, 0
    lengths = np.concatenate([lane.end - lane.start for lane in lanes])
    least = int(np.partition(lengths, total - MAX_EVENTS)[total - MAX_EVENTS])
    kept = []
    for lane in lanes:
        long = lane.end - lane.start > least
        kept.append(
            _LaneEvents(
                label=lane.label,
                kind=lane.kind,
                depth=lane.depth,
                start=lane.start[long],
                end=lane.end[long],
                name=lane.name[long],
            )
        )
    return [lane for lane in kept if len(lane.start)], total - sum(len(lane.start) for lane in kept)
