"""The columns of numbers that a trace is read into. They are the input of the analysis."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

MAX_DEVICES: Final = 1024
MAX_KERNEL_NAMES: Final = 20_000
_LINE_BREAK: Final = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
Column = npt.NDArray[Any]
RowSelection = Column | slice
T = TypeVar("T", bound="DeviceEvents | HostEvents | MemoryEvents")


class EventKind(IntEnum):
    """The kind of a device event."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2


@dataclass(frozen=True, kw_only=True)
class DeviceEvents:
    """Kernels, copies and memsets. Times are in ns. Names and launch configurations are ids. -1 means unknown."""

    start: Column
    end: Column
    kind: Column
    name: Column
    device: Column
    stream: Column
    correlation: Column
    external: Column
    bytes: Column
    launch_config: Column
    detail: Column  # an id: what the trace records about a collective

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, kw_only=True)
class HostEvents:
    """Runtime calls, operators or annotations."""

    start: Column
    end: Column
    name: Column
    thread: Column
    correlation: Column
    external: Column
    detail: Column  # an id: shapes, types and some arguments of an operator, the kernel of a launch call

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, kw_only=True)
class MemoryEvents:
    """Allocations and frees that the profiler recorded."""

    time: Column
    change: Column
    allocated: Column
    reserved: Column
    device: Column  # -1 for the host
    thread: Column

    def __len__(self) -> int:
        return len(self.time)


@dataclass(kw_only=True)
class CounterSum:
    """A hardware counter of one kernel, summed over dispatches."""

    count: int = 0  # dispatches
    total: float = 0.0
    timed: int = 0  # dispatches with a known duration
    time_ns: int = 0  # the sum of these durations


@dataclass(frozen=True, kw_only=True)
class TraceColumns:
    """One file: its events in columns, the strings that the ids refer to, and the file's metadata."""

    producer: str
    names: tuple[str, ...]
    launch_configs: tuple[str, ...]
    threads: tuple[str, ...]  # "pid/tid"; `thread_names` maps some of them to a name
    device: DeviceEvents
    calls: HostEvents
    ops: HostEvents
    annotations: HostEvents
    memory: MemoryEvents
    events: int
    skipped: int
    unused_events: Mapping[str, int] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    details: tuple[str, ...] = ("",)  # texts of JSON values, each followed by a NUL; they are parsed when needed
    thread_names: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, CounterSum]] = field(default_factory=dict)  # by kernel, then by counter


COLUMN_TYPES: Final[Mapping[str, npt.DTypeLike]] = {
    "start": np.int64,
    "end": np.int64,
    "time": np.int64,
    "kind": np.uint8,
    "name": np.int32,
    "device": np.int32,
    "stream": np.int64,
    "thread": np.int32,
    "correlation": np.int64,
    "external": np.int64,
    "bytes": np.int64,
    "launch_config": np.int32,
    "detail": np.int32,
    "change": np.int64,
    "allocated": np.int64,
    "reserved": np.int64,
}
# These columns start with 4 bytes per number and are widened when a number does not fit.
_NARROW: Final = dict.fromkeys(("stream", "correlation", "external", "bytes"), np.int32)
_PENDING_PARTS: Final = 64


class IdTable(dict[Any, int]):
    """Gives each distinct value an id. The lookup of a new value assigns the next id."""

    def __missing__(self, value: object) -> int:
        self[value] = new_id = len(self)
        return new_id


class GrowingTable(Generic[T]):
    """A table that grows in place when rows are appended, so that no column is in memory twice."""

    def __init__(self, table: type[T], first: T | None = None) -> None:
        """Start empty, or with the columns of `first`, which must not be used afterwards."""
        self._table = table
        self._columns: dict[str, Column] = {
            f.name: getattr(first, f.name) if first else np.empty(0, dtype=_NARROW.get(f.name, COLUMN_TYPES[f.name]))
            for f in fields(table)
        }
        self._size = len(first) if first else 0
        self._pending: list[T] = []

    def add(self, part: T) -> None:
        """Append rows. Parts are collected first, because each append to the columns has a fixed cost, as high as that of a thousand rows."""
        self._pending.append(part)
        if len(self._pending) >= _PENDING_PARTS:
            self._append_pending()

    def finish(self) -> T:
        """Return the table. Nothing can be added afterwards."""
        self._append_pending()
        for column in self._columns.values():
            column.resize(self._size, refcheck=False)
        return self._table(**self._columns)

    def _append_pending(self) -> None:
        parts, self._pending = self._pending, []
        size = self._size + sum(map(len, parts))
        for name, column in self._columns.items():
            new = np.concatenate([column[:0], *(getattr(part, name) for part in parts)])
            if new.dtype != column.dtype and not np.array_equal(new.astype(column.dtype), new):
                column = self._columns[name] = column.astype(new.dtype)  # noqa: PLW2901
            if size > len(column):
                column.resize(max(size, len(column) + len(column) // 4), refcheck=False)
            column[self._size : size] = new
        self._size = size


def select_rows(table: T, selection: RowSelection) -> T:
    """Return the rows of a table that a mask, row numbers or a slice select."""
    return type(table)(**{f.name: getattr(table, f.name)[selection] for f in fields(table)})


def limit_columns(columns: TraceColumns) -> TraceColumns:
    """Merge the shortest kernels and drop devices beyond what any real run has: each of them costs time in the analysis.

    Names become one line: a line break in a name could imitate a line of the report.
    """
    damage = []
    if any(map(_LINE_BREAK.search, (*columns.names, *columns.thread_names.values()))):
        columns = replace(
            columns,
            names=tuple(_LINE_BREAK.sub(" ", name) for name in columns.names),
            thread_names={key: _LINE_BREAK.sub(" ", name) for key, name in columns.thread_names.items()},
        )
    devices = sorted_unique(columns.device.device)
    if len(devices) > MAX_DEVICES:
        damage.append(f"{len(devices):,} device numbers: only events of the first {MAX_DEVICES} were read")
        columns = replace(
            columns, device=select_rows(columns.device, columns.device.device <= devices[MAX_DEVICES - 1])
        )
    ids = sorted_unique(columns.device.name)
    if len(ids) > MAX_KERNEL_NAMES:
        position = np.searchsorted(ids, columns.device.name)
        time = np.bincount(position, weights=columns.device.end - columns.device.start, minlength=len(ids))
        merged = np.ones(len(ids), dtype=np.bool_)
        merged[np.argsort(-time, kind="stable")[: MAX_KERNEL_NAMES - 1]] = False
        damage.append(f"{len(ids):,} kernel names: the {int(merged.sum()):,} with the least time are shown as one")
        name = np.where(merged[position], len(columns.names), columns.device.name).astype(columns.device.name.dtype)
        columns = replace(
            columns,
            device=replace(columns.device, name=name),
            names=(*columns.names, f"({int(merged.sum()):,} others)"),
        )
    return replace(columns, damage=(*columns.damage, *damage)) if damage else columns


def sorted_unique(values: Column) -> Column:
    """Return each value once, sorted. `np.unique` is slower, because it hashes, and it imports numpy's masked arrays."""
    in_order = np.sort(values)
    return in_order[np.append(True, in_order[1:] != in_order[:-1])] if len(in_order) else in_order


def thread_name(columns: TraceColumns, thread_id: int) -> str:
    """Return the name of a thread in the trace, or its pid and tid."""
    name = columns.thread_names.get(columns.threads[thread_id], columns.threads[thread_id])
    return name if name.startswith("thread") else f"thread {name}"
