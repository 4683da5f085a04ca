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
    """Build the timeline: one lane for each stream of each device, then one lane for each nesting depth of each thread."""
    lanes = [*_device_lanes(columns), *_host_lanes(columns)]
    if not lanes:
        return Timeline(data="", unit_ns=1, span_ns=0, origin_ns=0, names=(), categories=(), lanes=())
    kept, dropped = _drop_shortest(lanes)
    origin = min(int(lane.start[0]) for lane in kept if len(lane.start))
    span = max(int(lane.end.max()) for lane in kept if len(lane.start)) - origin
    unit = max(1, -(-span // _MAX_UINT32))
    parts: list[Column] = []
    name_index: dict[int, int] = {}  # the index in the timeline of each name id
    for lane in kept:
        start = (lane.start - origin) // unit
        parts.append(np.diff(start, prepend=0).astype("<u4"))
        parts.append(np.minimum(-(-(lane.end - lane.start) // unit), _MAX_UINT32).astype("<u4"))
        name_ids, inverse = np.unique(lane.name, return_inverse=True)
        indices = np.array([name_index.setdefault(int(n), len(name_index)) for n in name_ids], dtype="<u4")
        parts.append(indices[inverse])
    names = tuple(columns.names[name_id] for name_id in name_index)
    packed = gzip.compress(b"".join(part.tobytes() for part in parts), 6, mtime=0)
    return Timeline(
        data=base64.b64encode(packed).decode(),
        unit_ns=unit,
        span_ns=span,
        origin_ns=origin,
        names=names,
        categories=tuple(_CATEGORIES.index(category(name)) for name in names),
        lanes=tuple(
            TimelineLane(label=lane.label, kind=lane.kind, depth=lane.depth, count=len(lane.start)) for lane in kept
        ),
        dropped_events=dropped,
        device_start_ns={
            str(device_id): int(columns.device.start[columns.device.device == device_id].min()) - origin
            for device_id in np.unique(columns.device.device)
        },
    )


def _device_lanes(columns: TraceColumns) -> list[_LaneEvents]:
    device = columns.device
    pairs = np.stack([device.device.astype(np.int64), device.stream])
    lanes = []
    for device_id, stream in np.unique(pairs, axis=1).T.tolist():
        rows = np.flatnonzero((device.device == device_id) & (device.stream == stream))
        rows = rows[np.argsort(device.start[rows], kind="stable")]
        label = f"device {device_id} · stream {stream}"
        kind = "device" if (device.kind[rows] == EventKind.KERNEL).any() else "copy"
        lanes.append(
            _LaneEvents(
                label=label, kind=kind, depth=0, start=device.start[rows], end=device.end[rows], name=device.name[rows]
            )
        )
    return sorted(lanes, key=lambda lane: -len(lane.start))


def _host_lanes(columns: TraceColumns) -> list[_LaneEvents]:
    tables = [getattr(columns, name) for name in _HOST_TABLES]
    start, end, name, thread = (
        np.concatenate([getattr(table, field) for table in tables]) for field in ("start", "end", "name", "thread")
    )
    lanes = []
    for thread_id in np.unique(thread):
        rows = np.flatnonzero(thread == thread_id)
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        depth = _depths(start[rows], end[rows])
        for level in range(min(int(depth.max(initial=0)) + 1, _MAX_DEPTH)):
            at_level = rows[depth == level]
            lanes.append(
                _LaneEvents(
                    label=thread_name(columns, thread_id) if level == 0 else "",
                    kind="host",
                    depth=level,
                    start=start[at_level],
                    end=end[at_level],
                    name=name[at_level],
                )
            )
    return lanes


def _depths(start: Column, end: Column) -> Column:
    """Return the nesting depth of each event. Events must be sorted by start, the longer first."""
    depths: list[int] = []
    open_until: list[int] = []
    for begin, until in zip(start.tolist(), end.tolist(), strict=True):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        depths.append(len(open_until))
        open_until.append(until)
    return np.array(depths, dtype=np.int64)


def _drop_shortest(lanes: list[_LaneEvents]) -> tuple[list[_LaneEvents], int]:
    """Return the `MAX_EVENTS` longest events, and the number of events that were dropped."""
    total = sum(len(lane.start) for lane in lanes)
    if total <= MAX_EVENTS:
        return lanes, 0
    durations = np.concatenate([lane.end - lane.start for lane in lanes])
    threshold = int(np.partition(durations, total - MAX_EVENTS)[total - MAX_EVENTS])
    kept = []
    for lane in lanes:
        long = lane.end - lane.start > threshold
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
