"""Packs the events of a trace for the timeline on the HTML page.

Events of devices are never left out; the page draws several events on one pixel as one box with their exact sum.
"""

import base64
import zlib
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rocsolid.model.trace import Category, TraceFile
from rocsolid.model.trace_view import Timeline, TimelineLane
from rocsolid.trace.analysis.categories import category
from rocsolid.trace.analysis.cost_model import parse_inputs
from rocsolid.trace.analysis.kernel_labels import kernel_labels
from rocsolid.trace.analysis.link_launches import Origins, find_origins, link_launches
from rocsolid.trace.columns import Column, EventKind, TraceColumns, thread_name

MAX_HOST_EVENTS: Final = 600_000
_MAX_DEPTH: Final = 14
_MAX_UINT32: Final = 2**32 - 1
_CATEGORIES: Final = tuple(Category)
_HOST_TABLES: Final = ("annotations", "ops", "calls")


@dataclass(frozen=True, kw_only=True)
class _Lane:
    """The events of one lane before they are packed."""

    label: str
    kind: str
    depth: int
    start: Column
    end: Column
    name: Column
    rows: Column  # their rows: of device events, or of all host tables together


def build_timeline(columns: TraceColumns, file: TraceFile | None = None, origins: Origins | None = None) -> Timeline:
    """Build the timeline: one lane for each stream of each device, then one lane for each nesting depth of each thread.

    Args:
        columns: the trace.
        file: its analysis, for the category of each kernel.
        origins: the operators of the device events, when they come from a trace of the capture.

    """
    device_lanes = _device_lanes(columns)
    host_lanes, dropped = _drop_shortest(_host_lanes(columns))
    lanes = [*device_lanes, *host_lanes]
    if not lanes:
        return Timeline(data="", unit_ns=1, span_ns=0, origin_ns=0, names=(), categories=(), lanes=())
    origin = min(int(lane.start[0]) for lane in lanes)
    span = max(int(lane.end.max()) for lane in lanes) - origin
    unit = max(1, -(-span // _MAX_UINT32))
    strings = _Strings(columns)
    extra = _DeviceDetails(columns, origins or find_origins(columns, link_launches(columns)), host_lanes)
    parts: list[Column] = []
    for lane in lanes:
        parts.append(np.diff((lane.start - origin) // unit, prepend=0).astype("<u4"))
        parts.append(np.minimum(-(-(lane.end - lane.start) // unit), _MAX_UINT32).astype("<u4"))
        parts.append(strings.indices(lane.name))
        if lane.kind != "host":
            operator = extra.origins.operator[lane.rows]
            parts.append(np.where(operator >= 0, strings.indices(np.maximum(operator, 0)) + 1, 0).astype("<u4"))
            parts.append(extra.detail(lane.rows))
            parts.append(extra.launch[lane.rows].astype("<u4"))
    names = strings.names()
    known = {row.name: row.category for device in file.devices for row in device.kernels} if file else {}
    labels = kernel_labels(names)
    return Timeline(
        data=base64.b64encode(_compressed(parts)).decode(),
        unit_ns=unit,
        span_ns=span,
        origin_ns=origin,
        names=names,
        labels={str(index): labels[name] for index, name in enumerate(names) if name in labels},
        details=tuple(extra.texts),
        categories=tuple(_CATEGORIES.index(known.get(name) or category(name)) for name in names),
        lanes=tuple(
            TimelineLane(label=lane.label, kind=lane.kind, depth=lane.depth, count=len(lane.start)) for lane in lanes
        ),
        dropped_events=dropped,
        device_start_ns={
            str(device_id): int(columns.device.start[columns.device.device == device_id].min()) - origin
            for device_id in np.unique(columns.device.device)
        },
    )


def _compressed(parts: list[Column]) -> bytes:
    """Return all columns as gzip data. Level 1 takes a fifth of the time of level 6, and a fifth more space."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(part.tobytes()) for part in parts), packer.flush()])


class _Strings:
    """The names that the timeline uses, in the order of their first use."""

    def __init__(self, columns: TraceColumns) -> None:
        self._columns = columns
        self._index = np.full(len(columns.names), -1, dtype=np.int64)
        self._used: list[int] = []

    def indices(self, name_ids: Column) -> Column:
        used = np.zeros(len(self._index), dtype=np.bool_)
        used[name_ids] = True
        new = np.flatnonzero(used & (self._index < 0))
        self._index[new] = np.arange(len(self._used), len(self._used) + len(new))
        self._used += new.tolist()
        return self._index[name_ids].astype("<u4")

    def names(self) -> tuple[str, ...]:
        return tuple(self._columns.names[name_id] for name_id in self._used)


class _DeviceDetails:
    """What the page shows about a device event besides its name: shapes, launch configuration and launch call."""

    def __init__(self, columns: TraceColumns, origins: Origins, host_lanes: list[_Lane]) -> None:
        self._columns, self.origins = columns, origins
        self.texts: list[str] = [""]
        self._index: dict[str, int] = {"": 0}
        links = link_launches(columns)
        first_call = len(columns.annotations) + len(columns.ops)
        position = np.zeros(first_call + len(columns.calls) + 1, dtype=np.int64)  # 0: the call is not on the page
        drawn = 0
        for lane in host_lanes:
            position[lane.rows] = np.arange(drawn + 1, drawn + 1 + len(lane.rows))
            drawn += len(lane.rows)
        self.launch = np.where(
            links.call_row >= 0, position[np.where(links.call_row >= 0, links.call_row + first_call, -1)], 0
        )

    def detail(self, rows: Column) -> Column:
        """Return the index of the text of each event. Few events differ in both parts of it."""
        device = self._columns.device
        inputs, config = self.origins.detail[rows], device.launch_config[rows]
        keys, inverse = np.unique((inputs.astype(np.int64) + 1) << 32 | config, return_inverse=True)
        found = [self._text(int(key >> 32) - 1, int(key & _MAX_UINT32)) for key in keys.tolist()]
        return np.array(found, dtype="<u4")[inverse] if found else np.zeros(0, dtype="<u4")

    def _text(self, inputs_id: int, config_id: int) -> int:
        inputs = parse_inputs(self._columns.details[inputs_id]) if inputs_id >= 0 else None
        shapes = f"inputs {inputs.text} {inputs.element_type}" if inputs and inputs.text else ""
        config = self._columns.launch_configs[config_id] if self._columns.launch_configs else ""
        text = "; ".join(filter(None, (shapes, config)))
        index = self._index.setdefault(text, len(self.texts))
        if index == len(self.texts):
            self.texts.append(text)
        return index


def _device_lanes(columns: TraceColumns) -> list[_Lane]:
    device = columns.device
    order = np.lexsort((device.start, device.stream, device.device))
    changes = (np.diff(device.device[order]) != 0) | (np.diff(device.stream[order]) != 0)
    lanes = []
    for rows in np.split(order, np.flatnonzero(changes) + 1) if len(order) else []:
        label = f"device {device.device[rows[0]]} · stream {device.stream[rows[0]]}"
        kind = "device" if (device.kind[rows] == EventKind.KERNEL).any() else "copy"
        lanes.append(
            _Lane(
                label=label,
                kind=kind,
                depth=0,
                start=device.start[rows],
                end=device.end[rows],
                name=device.name[rows],
                rows=rows,
            )
        )
    return sorted(lanes, key=lambda lane: -len(lane.start))


def _host_lanes(columns: TraceColumns) -> list[_Lane]:
    tables = [getattr(columns, name) for name in _HOST_TABLES]
    start, end, name, thread = (
        np.concatenate([getattr(table, field) for table in tables]) for field in ("start", "end", "name", "thread")
    )
    order = np.lexsort((-end, start, thread))
    lanes = []
    for rows in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1) if len(order) else []:
        left = rows
        for level in range(_MAX_DEPTH):
            if not len(left):
                break
            # An event is at this level if all earlier events of the level have ended; the others are inside one of them.
            latest = np.maximum.accumulate(end[left])
            outer = np.concatenate(([True], start[left][1:] >= latest[:-1]))
            at_level, left = left[outer], left[~outer]
            lanes.append(
                _Lane(
                    label=thread_name(columns, int(thread[rows[0]])) if level == 0 else "",
                    kind="host",
                    depth=level,
                    start=start[at_level],
                    end=end[at_level],
                    name=name[at_level],
                    rows=at_level,
                )
            )
    return lanes


def _drop_shortest(lanes: list[_Lane]) -> tuple[list[_Lane], int]:
    """Return the `MAX_HOST_EVENTS` longest events of the host, and the number of events that were dropped."""
    total = sum(len(lane.start) for lane in lanes)
    if total <= MAX_HOST_EVENTS:
        return lanes, 0
    durations = np.concatenate([lane.end - lane.start for lane in lanes])
    threshold = int(np.partition(durations, total - MAX_HOST_EVENTS)[total - MAX_HOST_EVENTS])
    kept = []
    for lane in lanes:
        long = lane.end - lane.start > threshold
        kept_columns: dict[str, Any] = {name: getattr(lane, name)[long] for name in ("start", "end", "name", "rows")}
        kept.append(replace(lane, **kept_columns))
    return [lane for lane in kept if len(lane.start)], total - sum(len(lane.start) for lane in kept)
