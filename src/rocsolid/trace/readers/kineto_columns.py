"""Converts decoded torch.profiler events into columns, chunk by chunk."""

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final

import numpy as np
from msgspec import Raw

from rocsolid.trace.columns import COLUMN_TYPES, Column, DeviceEvents, GrowingTable, HostEvents, IdTable, MemoryEvents
from rocsolid.trace.readers.event_decoder import (
    DEVICE_CATEGORIES,
    HOST_CATEGORIES,
    Args,
    Begin,
    ByCategory,
    Complete,
    End,
    Instant,
    Loose,
    Meta,
)
from rocsolid.trace.readers.exact_times import parse_durations, parse_timestamps

_NO_ARGS: Final = Args()
_MAX_DETAIL_BYTES: Final = 2048  # as in scan/scan.c
_COST_WORDS: Final = ("conv", "atten", "attn", "Attn", "mha")  # as in scan/scan.c
_PHASE, _PID, _TID = attrgetter("ph"), attrgetter("pid"), attrgetter("tid")
_MEMORY_EVENT: Final = "[memory]"
_BATCH: Final = 4096
_ACCELERATORS: Final = frozenset({1, 20})  # c10::DeviceType: CUDA (which ROCm builds use too) and HIP


class KinetoColumnBuilder:
    """Collects decoded events as columns."""

    def __init__(self) -> None:
        self.names, self.launch_configs, self.threads, self.details = IdTable(), IdTable(), IdTable(), IdTable()
        self.device = GrowingTable(DeviceEvents)
        self.calls, self.ops = GrowingTable(HostEvents), GrowingTable(HostEvents)
        self.annotations = GrowingTable(HostEvents)
        self.memory = GrowingTable(MemoryEvents)
        self.thread_names: dict[str, str] = {}
        self._pending: list[Any] = []
        self._begun: dict[tuple[Loose, Loose], list[Begin]] = defaultdict(list)  # by process and thread
        self.events = 0
        self.broken = 0  # events whose text cannot be decoded
        self.unusable = 0  # events without a valid time
        self.unused_events: dict[str, int] = {}

    def add(self, events: list[Any]) -> None:
        """Add events. They are converted in batches, because starting a new column takes as long as a thousand events."""
        self._pending += events
        self.events += len(events)
        if len(self._pending) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Convert all pending events."""
        events, self._pending = self._with_pairs(self._pending), []
        by_type: dict[Any, list[Any]] = defaultdict(list)
        for event in events:
            by_type[type(event)].append(event)
        by_category: dict[str, list[Any]] = defaultdict(list)
        for event in by_type.pop(Complete, ()):
            by_category[event.cat].append(event)
        for kind in [kind for kind in by_type if issubclass(kind, ByCategory)]:
            by_category[kind.cat] += by_type.pop(kind)
        device = {category: by_category.pop(category) for category in DEVICE_CATEGORIES if category in by_category}
        if device:
            self._add_device_events(events, device, others=by_type)
        for category, found in by_category.items():
            if category in HOST_CATEGORIES:
                self._add_host_events(found, getattr(self, HOST_CATEGORIES[category]))
            else:
                self._count_unused(category, len(found))
        self._add_others(by_type)

    def _with_pairs(self, events: list[Any]) -> list[Any]:
        """Return the events with each begin and end replaced by one complete event."""
        if not any(type(event) in (Begin, End) for event in events):
            return events
        kept: list[Any] = []
        for event in events:
            if type(event) is Begin:
                self._begun[event.pid, event.tid].append(event)
            elif type(event) is End:
                kept += self._completed(event)
            else:
                kept.append(event)
        return kept

    def _completed(self, end: End) -> list[Complete]:
        """Return the event that ends here; none if it did not begin, or if a time is invalid. Two events become one."""
        open_events = self._begun[end.pid, end.tid]
        if not open_events:
            self.unusable += 1
            return []
        begin = open_events.pop()
        self.events -= 1
        times, good = parse_timestamps([begin.ts, end.ts])
        if not good.all():
            self.unusable += 1
            return []
        return [
            Complete(
                ts=begin.ts,
                dur=int(times[1] - times[0]) / 1000,
                name=begin.name,
                cat=begin.cat,
                pid=begin.pid,
                tid=begin.tid,
                args=begin.args,
            )
        ]

    def add_unused(self, category: str, count: int) -> None:
        """Count events that were checked and are not needed."""
        self.events += count
        self._count_unused(category, count)

    def _count_unused(self, category: str, count: int) -> None:
        if count:
            self.unused_events[category] = self.unused_events.get(category, 0) + count

    def _add_others(self, by_type: dict[Any, list[Any]]) -> None:
        """Add allocator events and thread names. Events of all other phases are only counted."""
        memory = [event for event in by_type.get(Instant, ()) if event.name == _MEMORY_EVENT]
        if memory:
            self._add_memory_events(memory)
        for event in by_type.get(Meta, ()):
            self._add_thread_name(event)
        for kind, events in by_type.items():
            phase = kind.__struct_config__.tag
            if "ph" in kind.__struct_fields__:
                for phase, count in Counter(map(_PHASE, events)).items():
                    self._count_unused(f"phase {phase}", count)
            else:
                self._count_unused(f"phase {phase}", len(events) - (len(memory) if kind is Instant else 0))

    def _with_times(self, events: list[Any]) -> tuple[list[Any], Column, Column, Column]:
        """Return the events with valid times, their starts and ends, and a mask of them. The others are counted."""
        start, good = parse_timestamps([e.ts for e in events])
        duration, good_duration = parse_durations([e.dur for e in events])
        good &= good_duration
        if not good.all():
            self.unusable += int((~good).sum())
            events = list(compress(events, good))
            start, duration = start[good], duration[good]
        return events, start, start + duration, good

    def _add_device_events(self, events: list[Any], by_category: dict[str, list[Any]], others: Container[Any]) -> None:
        """Add kernels, copies and memsets in the order of the file, so that the result does not depend on the batch size."""
        category, given = next(iter(by_category.items()))
        kinds = [DEVICE_CATEGORIES[category]] * len(given)
        if len(by_category) > 1:
            given = [event for event in events if type(event) not in others and event.cat in DEVICE_CATEGORIES]
            kinds = [DEVICE_CATEGORIES[event.cat] for event in given]
        timed, start, end, good = self._with_times(given)
        args = [e.args or _NO_ARGS for e in timed]
        names, configs = self.names, self.launch_configs
        device, stream = [a.device for a in args], [a.stream for a in args]
        config = [configs[bytes(a.grid), bytes(a.block), a.registers, a.shared] for a in args]
        self.device.add(
            DeviceEvents(
                start=start,
                end=end,
                kind=np.array(kinds, dtype=np.uint8)[good],
                name=np.array([names[e.name] for e in timed], dtype=np.int32),
                device=integers(_with_default(device, timed, _PID)).astype(np.int32),
                stream=integers(_with_default(stream, timed, _TID)),
                correlation=integers([a.correlation for a in args]),
                external=integers([a.external for a in args]),
                bytes=integers([a.bytes for a in args]),
                launch_config=np.array(config, dtype=np.int32),
                detail=self._details(
                    [(a.collective, a.in_elements, a.out_elements, a.element_type, a.group_size) for a in args]
                ),
            )
        )

    def _add_host_events(self, given: list[Any], table: GrowingTable[HostEvents]) -> None:
        events, start, end, _ = self._with_times(given)
        args = [e.args or _NO_ARGS for e in events]
        names = self.names
        table.add(
            HostEvents(
                start=start,
                end=end,
                name=np.array([names[e.name] for e in events], dtype=np.int32),
                thread=self._thread_ids([e.pid for e in events], [e.tid for e in events]),
                correlation=integers([a.correlation for a in args]),
                external=integers([a.external for a in args]),
                detail=self._details(
                    [
                        (a.dims, a.types, a.concrete if has_cost_arguments(e.name) else b"", a.kernel)
                        for a, e in zip(args, events, strict=True)
                    ]
                ),
            )
        )

    def _details(self, parts: Sequence[tuple[Raw | bytes, ...]]) -> Column:
        """Return the ids of details, of which each part is followed by a NUL; empty when there are none, or too many."""
        details, found = self.details, []
        for texts in parts:
            key = b"".join([bytes(text) + b"\0" for text in texts]) if any(texts) else b""
            found.append(details[key if len(key) <= _MAX_DETAIL_BYTES else b""])
        return np.array(found, dtype=np.int32)

    def _thread_ids(self, pid: Sequence[Loose], tid: Sequence[Loose]) -> Column:
        """Return the thread id of each event. A batch has few threads, so each thread is looked up only once."""
        threads = self.threads
        try:
            pids, tids = np.array(pid, np.int64), np.array(tid, np.int64)
        except (ValueError, TypeError, OverflowError):
            return np.array([threads[thread] for thread in zip(pid, tid, strict=True)], dtype=np.int32)
        _, first, inverse = np.unique(pids * 0x1F1F1F1F ^ tids, return_index=True, return_inverse=True)
        numbers = np.array([threads[pid[n], tid[n]] for n in first.tolist()], dtype=np.int32)
        return numbers[inverse]

    def _add_memory_events(self, events: list[Instant]) -> None:
        times, good = parse_timestamps([e.ts for e in events])
        self.unusable += int((~good).sum())
        usable = np.array([bool(v and e.args) for e, v in zip(events, good, strict=True)], dtype=np.bool_)
        times, events = times[usable], [e for e, use in zip(events, usable, strict=True) if use]
        args = [e.args for e in events if e.args]
        self.memory.add(
            MemoryEvents(
                time=times,
                change=integers([a.bytes for a in args]),
                allocated=integers([a.allocated for a in args]),
                reserved=integers([a.reserved for a in args]),
                device=integers([a.device if a.device_type in _ACCELERATORS else -1 for a in args]).astype(np.int32),
                thread=self._thread_ids([e.pid for e in events], [e.tid for e in events]),
            )
        )

    def _add_thread_name(self, event: Meta) -> None:
        if event.args and event.name == "thread_name" and event.args.name is not None:
            self.thread_names[f"{event.pid}/{event.tid}"] = str(event.args.name)

    def tables(self) -> dict[str, Any]:
        """All tables; nothing can be added afterwards."""
        self.flush()
        self.unusable += sum(map(len, self._begun.values()))
        self._begun.clear()
        return {name: getattr(self, name).finish() for name in ("device", "calls", "ops", "annotations", "memory")}


def has_cost_arguments(operator: str) -> bool:
    """Return whether the arguments of an operator matter for its cost; those of others differ in almost every event."""
    return any(word in operator for word in _COST_WORDS)


def _with_default(values: list[Loose], events: list[Any], field: "attrgetter[Loose]") -> list[Loose]:
    """Return the values. A value that is missing in `args` is replaced by the `pid` or `tid` of the event."""
    if None not in values:
        return values
    return [field(event) if value is None else value for value, event in zip(values, events, strict=True)]


def integers(values: Sequence[Loose]) -> Column:
    """Return the values as integers; -1 for those that are not integers."""
    try:
        return np.array(values, dtype=COLUMN_TYPES["bytes"])
    except (ValueError, TypeError, OverflowError):
        return np.array([_integer(v) for v in values], dtype=COLUMN_TYPES["bytes"])


def _integer(value: Loose) -> int:
    try:
        number = int(value) if value is not None else -1
    except (ValueError, OverflowError):
        return -1
    return number if abs(number) < 2**63 else -1
