"""Decoded events into columns, piece by piece."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rocsolid.trace.columns import TYPES, Column, DeviceEvents, HostEvents, Kind, MemoryEvents, stack
from rocsolid.trace.phases import Args, Complete, Instant, Loose, Meta
from rocsolid.trace.times import durations, nanoseconds

# Categories of Kineto, today's and those of torch before 1.12, on both vendors.
_DEVICE: Final = {
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "Memcpy": Kind.COPY,
    "gpu_memset": Kind.SET,
    "Memset": Kind.SET,
}
_HOST: Final = {
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "Runtime"), "calls"),
    **dict.fromkeys(("cpu_op", "Operator"), "ops"),
    "user_annotation": "notes",
}
_TABLES: Final[dict[str, Any]] = {
    "device": DeviceEvents,
    "calls": HostEvents,
    "ops": HostEvents,
    "notes": HostEvents,
    "memory": MemoryEvents,
}
_NO_ARGS: Final = Args()
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
        self.device: list[DeviceEvents] = []
        self.calls: list[HostEvents] = []
        self.ops: list[HostEvents] = []
        self.notes: list[HostEvents] = []
        self.memory: list[MemoryEvents] = []
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
        by_category: dict[str, list[Complete]] = defaultdict(list)
        others: list[Any] = []
        for event in events:
            if type(event) is Complete:
                by_category[event.cat].append(event)
            else:
                others.append(event)
        # Kernels, copies and fills in the order of the file, so that the size of a batch decides nothing.
        present = [category for category in by_category if category in _DEVICE]
        device = (
            [e for e in events if type(e) is Complete and e.cat in _DEVICE]
            if len(present) > 1
            else [e for category in present for e in by_category[category]]
        )
        for category, found in by_category.items():
            if category in _DEVICE:
                continue
            if category in _HOST:
                self._host(found, getattr(self, _HOST[category]))
            else:
                self.set_aside[category] = self.set_aside.get(category, 0) + len(found)
        if device:
            self._device(device)
        if others:
            self._others(others)

    def leave(self, category: str, count: int) -> None:
        """Events that were checked, and are set aside."""
        self.events += count
        self.set_aside[category] = self.set_aside.get(category, 0) + count

    def _others(self, events: list[Any]) -> None:
        """Moments and names; arrows and the like are counted."""
        memory = [e for e in events if type(e) is Instant and e.name == _MEMORY]
        if memory:
            self._memory(memory)
        for event in events:
            if type(event) is Meta:
                self._name_thread(event)
        kinds: Counter[Any] = Counter(map(type, events))
        for kind, count in kinds.items():
            phase = f"phase {kind.__struct_config__.tag}"
            rest = count - len(memory) if kind is Instant else count
            if rest:
                self.set_aside[phase] = self.set_aside.get(phase, 0) + rest

    def _timed(self, events: list[Complete]) -> tuple[list[Complete], Column, Column]:
        """Events with their beginnings and ends; those without a usable time are counted as skipped."""
        start, good = nanoseconds([e.ts for e in events])
        length, lasting = durations([e.dur for e in events])
        good &= lasting
        if not good.all():
            self.unusable += int((~good).sum())
            events = [event for event, kept in zip(events, good, strict=True) if kept]
            start, length = start[good], length[good]
        return events, start, start + length

    def _device(self, given: list[Complete]) -> None:
        events, start, end = self._timed(given)
        args = [e.args or _NO_ARGS for e in events]
        names, shapes = self.names, self.shapes
        devices = [a.device if a.device is not None else e.pid for a, e in zip(args, events, strict=True)]
        streams = [a.stream if a.stream is not None else e.tid for a, e in zip(args, events, strict=True)]
        shape = [shapes[bytes(a.grid), bytes(a.block), a.registers, a.shared] for a in args]
        self.device.append(
            DeviceEvents(
                start=start,
                end=end,
                kind=np.array([_DEVICE[e.cat] for e in events], dtype=np.uint8),
                name=np.array([names[e.name] for e in events], dtype=np.int32),
                device=whole(devices).astype(np.int32),
                stream=whole(streams),
                correlation=whole([a.correlation for a in args]),
                external=whole([a.external for a in args]),
                bytes=whole([a.bytes for a in args]),
                shape=np.array(shape, dtype=np.int32),
            )
        )

    def _host(self, given: list[Complete], table: list[HostEvents]) -> None:
        events, start, end = self._timed(given)
        args = [e.args or _NO_ARGS for e in events]
        names = self.names
        table.append(
            HostEvents(
                start=start,
                end=end,
                name=np.array([names[e.name] for e in events], dtype=np.int32),
                thread=self._threads(events),
                correlation=whole([a.correlation for a in args]),
                external=whole([a.external for a in args]),
            )
        )

    def _threads(self, events: list[Complete]) -> Column:
        """The number of each event's thread; a piece knows few of them, so look up each only once."""
        threads = self.threads
        try:
            pids, tids = np.array([e.pid for e in events], np.int64), np.array([e.tid for e in events], np.int64)
        except (ValueError, TypeError, OverflowError):
            return np.array([threads[e.pid, e.tid] for e in events], dtype=np.int32)
        _, first, inverse = np.unique(pids * 0x1F1F1F1F ^ tids, return_index=True, return_inverse=True)
        numbers = np.array([threads[events[n].pid, events[n].tid] for n in first.tolist()], dtype=np.int32)
        return numbers[inverse]

    def _memory(self, events: list[Instant]) -> None:
        at, good = nanoseconds([e.ts for e in events])
        self.unusable += int((~good).sum())
        args = [e.args for e, kept in zip(events, good, strict=True) if kept and e.args]
        if len(args) != len(at):
            at = at[np.array([bool(k and e.args) for e, k in zip(events, good, strict=True)], dtype=np.bool_)]
        self.memory.append(
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
        """Everything gathered, each kind in one table; the parts are given up as they are joined."""
        self.settle()
        found: dict[str, Any] = {}
        for name in ("device", "calls", "ops", "notes", "memory"):
            parts = getattr(self, name)
            found[name] = stack(_TABLES[name], parts)
            parts.clear()
        return found


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
