"""A trace as columns: what the answers are counted from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
Which = Column | slice
T = TypeVar("T", bound="DeviceEvents | HostEvents | MemoryEvents")


class Kind(IntEnum):
    """What the device did."""

    KERNEL = 0
    COPY = 1
    SET = 2


@dataclass(frozen=True, kw_only=True)
class DeviceEvents:
    """Kernels, copies and fills; times in ns, names and shapes by number, -1 where something is not known."""

    start: Column
    end: Column
    kind: Column
    name: Column
    device: Column
    stream: Column
    correlation: Column
    external: Column
    bytes: Column
    shape: Column

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

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, kw_only=True)
class MemoryEvents:
    """What the allocator reported."""

    at: Column
    change: Column
    allocated: Column
    reserved: Column
    device: Column  # -1 for the host

    def __len__(self) -> int:
        return len(self.at)


@dataclass(kw_only=True)
class Tally:
    """A counter of one kernel: over how many dispatches, the sum, and how long those took whose time is known."""

    count: int = 0
    total: float = 0.0
    timed: int = 0
    time_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One file: events in columns, the words they use, and what stood around them."""

    producer: str
    names: tuple[str, ...]
    shapes: tuple[str, ...]
    threads: tuple[str, ...]  # ids; names of threads may stand in another part of the file
    device: DeviceEvents
    calls: HostEvents
    ops: HostEvents
    notes: HostEvents
    memory: MemoryEvents
    events: int
    skipped: int
    set_aside: Mapping[str, int] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    thread_names: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, Tally]] = field(default_factory=dict)  # by kernel and name


TYPES: Final[Mapping[str, npt.DTypeLike]] = {
    "start": np.int64,
    "end": np.int64,
    "at": np.int64,
    "kind": np.uint8,
    "name": np.int32,
    "device": np.int32,
    "stream": np.int64,
    "thread": np.int32,
    "correlation": np.int64,
    "external": np.int64,
    "bytes": np.int64,
    "shape": np.int32,
    "change": np.int64,
    "allocated": np.int64,
    "reserved": np.int64,
}
_NARROW: Final = dict.fromkeys(("stream", "correlation", "external", "bytes"), np.int32)  # as long as they fit
_PARTS: Final = 64


class Growing(Generic[T]):
    """A table that grows at its end: nothing is held twice, and numbers take four bytes until one needs eight."""

    def __init__(self, table: type[T], first: T | None = None) -> None:
        """Empty, or with the rows of a table that is used up by it."""
        self._table = table
        self._columns: dict[str, Column] = {
            f.name: getattr(first, f.name) if first else np.empty(0, dtype=_NARROW.get(f.name, TYPES[f.name]))
            for f in fields(table)
        }
        self._size = len(first) if first else 0
        self._waiting: list[T] = []

    def add(self, part: T) -> None:
        """Some rows more; they are let in many parts at once, since each time costs as much as a thousand rows."""
        self._waiting.append(part)
        if len(self._waiting) >= _PARTS:
            self._let_in()

    def whole(self) -> T:
        """The table; there is nothing to add afterwards."""
        self._let_in()
        for column in self._columns.values():
            column.resize(self._size, refcheck=False)
        return self._table(**self._columns)

    def _let_in(self) -> None:
        parts, self._waiting = self._waiting, []
        size = self._size + sum(map(len, parts))
        for name, column in self._columns.items():
            given = np.concatenate([column[:0], *(getattr(part, name) for part in parts)])
            if given.dtype != column.dtype and not np.array_equal(given.astype(column.dtype), given):
                column = self._columns[name] = column.astype(given.dtype)  # noqa: PLW2901
            if size > len(column):
                column.resize(max(size, len(column) + len(column) // 4), refcheck=False)
            column[self._size : size] = given
        self._size = size


def rows(table: T, which: Which) -> T:
    """Some rows of a table: by mask, by number, or all of them as they are."""
    return type(table)(**{f.name: getattr(table, f.name)[which] for f in fields(table)})


def distinct(values: Column) -> Column:
    """Each value once, in order. numpy's own way hashes, which takes longer, and loads its masked arrays for it."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
