"""Decoded events into columns, piece by piece."""

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final

import numpy as np

from rocsolid.trace.columns import TYPES, Column, DeviceEvents, Growing, HostEvents, Kind, MemoryEvents
from rocsolid.trace.event_types import Args, ByCategory, Complete, Instant, Loose, Meta
from rocsolid.trace.exact_times import durations, nanoseconds

# Categories of Kineto, today's and those of torch before 1.12, on both vendors.
DEVICE: Final = {
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "Memcpy": Kind.COPY,
    "gpu_memset": Kind.SET,
    "Memset": Kind.SET,
}
HOST: Final = {
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "Runtime"), "calls"),
    **dict.fromkeys(("cpu_op", "Operator"), "ops"),
    "user_annotation": "notes",
}
_NO_ARGS: Final = Args()
_PHASE, _PID, _TID = attrgetter("ph"), attrgetter("pid"), attrgetter("tid")
_MEMORY: Final = "[memory]"
_AT_ONCE: Final = 4096
FUNCTIONS: Final = "python_function"
_ACCELERATORS: Final = frozenset({1, 20})  # c10::DeviceType: CUDA (which ROCm calls itself) and HIP


class Words(dict[Any, int]):
    """Text by number: each word is kept once, and asking for a new one gives it the next number."""

    def __missing__(self, word: object) -> int:
        self[word] = number = len(self)
        return number


class Gatherer:
    """Takes events as they are decoded and holds them as columns."""

    def __init__(self) -> None:
        self.names, self.shapes, self.threads = Words(), Words(), Words()
        self.device = Growing(DeviceEvents)
        self.calls, self.ops, self.notes = Growing(HostEvents), Growing(HostEvents), Growing(HostEvents)
        self.memory = Growing(MemoryEvents)
        self.thread_names: dict[str, str] = {}
        self._waiting: list[Any] = []
        self.events = 0
        self.broken = 0  # events whose text cannot be decoded
        self.unusable = 0  # events without a time, or with an impossible one
        self.set_aside: dict[str, int] = {}

    def take(self, events: list[Any]) -> None:
        """Some more events; columns are made of many at once, since each column costs as much as a thousand events."""
        self._waiting += events
        self.events += len(events)
        if len(self._waiting) >= _AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Sort what is waiting into its tables."""
        events, self._waiting = self._waiting, []
        by_type: dict[Any, list[Any]] = defaultdict(list)
        for event in events:
            by_type[type(event)].append(event)
        by_category: dict[str, list[Any]] = defaultdict(list)
        for event in by_type.pop(Complete, ()):
            by_category[event.cat].append(event)
        for kind in [kind for kind in by_type if issubclass(kind, ByCategory)]:
            by_category[kind.cat] += by_type.pop(kind)
        device = {category: by_category.pop(category) for category in DEVICE if category in by_category}
        if device:
            self._device(events, device, others=by_type)
        for category, found in by_category.items():
            if category in HOST:
                self._host(found, getattr(self, HOST[category]))
            else:
                self._aside(category, len(found))
        self._others(by_type)

    def leave(self, category: str, count: int) -> None:
        """Events that were checked, and are set aside."""
        self.events += count
        self._aside(category, count)

    def _aside(self, category: str, count: int) -> None:
        if count:
            self.set_aside[category] = self.set_aside.get(category, 0) + count

    def _others(self, by_type: dict[Any, list[Any]]) -> None:
        """Moments and names; arrows and the like are counted."""
        memory = [event for event in by_type.get(Instant, ()) if event.name == _MEMORY]
        if memory:
            self._memory(memory)
        for event in by_type.get(Meta, ()):
            self._name_thread(event)
        for kind, events in by_type.items():
            phase = kind.__struct_config__.tag
            if "ph" in kind.__struct_fields__:
                for phase, count in Counter(map(_PHASE, events)).items():
                    self._aside(f"phase {phase}", count)
            else:
                self._aside(f"phase {phase}", len(events) - (len(memory) if kind is Instant else 0))

    def _timed(self, events: list[Any]) -> tuple[list[Any], Column, Column, Column]:
        """Events with their beginnings and ends; those without a usable time are counted as skipped and not kept."""
        start, good = nanoseconds([e.ts for e in events])
        length, lasting = durations([e.dur for e in events])
        good &= lasting
        if not good.all():
            self.unusable += int((~good).sum())
            events = list(compress(events, good))
            start, length = start[good], length[good]
        return events, start, start + length, good

    def _device(self, events: list[Any], by_category: dict[str, list[Any]], others: Container[Any]) -> None:
        """Kernels, copies and fills in the order of the file, so that the size of a batch decides nothing."""
        category, given = next(iter(by_category.items()))
        kinds = [DEVICE[category]] * len(given)
        if len(by_category) > 1:
            given = [event for event in events if type(event) not in others and event.cat in DEVICE]
            kinds = [DEVICE[event.cat] for event in given]
        timed, start, end, good = self._timed(given)
        args = [e.args or _NO_ARGS for e in timed]
        names, shapes = self.names, self.shapes
        device, stream = [a.device for a in args], [a.stream for a in args]
        shape = [shapes[bytes(a.grid), bytes(a.block), a.registers, a.shared] for a in args]
        self.device.add(
            DeviceEvents(
                start=start,
                end=end,
                kind=np.array(kinds, dtype=np.uint8)[good],
                name=np.array([names[e.name] for e in timed], dtype=np.int32),
                device=whole(_filled(device, timed, _PID)).astype(np.int32),
                stream=whole(_filled(stream, timed, _TID)),
                correlation=whole([a.correlation for a in args]),
                external=whole([a.external for a in args]),
                bytes=whole([a.bytes for a in args]),
                shape=np.array(shape, dtype=np.int32),
            )
        )

    def _host(self, given: list[Any], table: Growing[HostEvents]) -> None:
        events, start, end, _ = self._timed(given)
        args = [e.args or _NO_ARGS for e in events]
        names = self.names
        table.add(
            HostEvents(
                start=start,
                end=end,
                name=np.array([names[e.name] for e in events], dtype=np.int32),
                thread=self._threads([e.pid for e in events], [e.tid for e in events]),
                correlation=whole([a.correlation for a in args]),
                external=whole([a.external for a in args]),
            )
        )

    def _threads(self, pid: Sequence[Loose], tid: Sequence[Loose]) -> Column:
        """The number of each event's thread; a piece knows few of them, so look up each only once."""
        threads = self.threads
        try:
            pids, tids = np.array(pid, np.int64), np.array(tid, np.int64)
        except (ValueError, TypeError, OverflowError):
            return np.array([threads[thread] for thread in zip(pid, tid, strict=True)], dtype=np.int32)
        _, first, inverse = np.unique(pids * 0x1F1F1F1F ^ tids, return_index=True, return_inverse=True)
        numbers = np.array([threads[pid[n], tid[n]] for n in first.tolist()], dtype=np.int32)
        return numbers[inverse]

    def _memory(self, events: list[Instant]) -> None:
        at, good = nanoseconds([e.ts for e in events])
        self.unusable += int((~good).sum())
        args = [e.args for e, kept in zip(events, good, strict=True) if kept and e.args]
        if len(args) != len(at):
            at = at[np.array([bool(k and e.args) for e, k in zip(events, good, strict=True)], dtype=np.bool_)]
        self.memory.add(
            MemoryEvents(
                at=at,
                change=whole([a.bytes for a in args]),
                allocated=whole([a.allocated for a in args]),
                reserved=whole([a.reserved for a in args]),
                device=whole([a.device if a.device_type in _ACCELERATORS else -1 for a in args]).astype(np.int32),
            )
        )

    def _name_thread(self, event: Meta) -> None:
        if event.args and event.name == "thread_name" and event.args.name is not None:
            self.thread_names[f"{event.pid}/{event.tid}"] = str(event.args.name)

    def tables(self) -> dict[str, Any]:
        """Everything gathered, each kind in one table."""
        self.settle()
        return {name: getattr(self, name).whole() for name in ("device", "calls", "ops", "notes", "memory")}


def _filled(values: list[Loose], events: list[Any], field: "attrgetter[Loose]") -> list[Loose]:
    """What an event does not say in its arguments is where it is drawn."""
    if None not in values:
        return values
    return [field(event) if value is None else value for value, event in zip(values, events, strict=True)]


def whole(values: Sequence[Loose]) -> Column:
    """Whole numbers; -1 for what is none."""
    try:
        return np.array(values, dtype=TYPES["bytes"])
    except (ValueError, TypeError, OverflowError):
        return np.array([_integer(v) for v in values], dtype=TYPES["bytes"])


def _integer(value: Loose) -> int:
    try:
        number = int(value) if value is not None else -1
    except (ValueError, OverflowError):
        return -1
    return number if abs(number) < 2**63 else -1
