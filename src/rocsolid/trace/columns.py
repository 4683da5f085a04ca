"""A trace as columns: what the answers are counted from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
T = TypeVar("T", "DeviceEvents", "HostEvents", "MemoryEvents")


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


def stack(table: type[T], parts: Sequence[T]) -> T:
    """Several tables, one below the other."""
    names = [f.name for f in fields(table)]
    if not parts:
        return table(**{name: np.zeros(0, dtype=TYPES[name]) for name in names})
    return table(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def rows(table: T, which: Column) -> T:
    """Some rows of a table: by mask or by number."""
    return type(table)(**{f.name: getattr(table, f.name)[which] for f in fields(table)})


def distinct(values: Column) -> Column:
    """Each value once, in order. numpy's own way hashes, which takes longer, and loads its masked arrays for it."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
