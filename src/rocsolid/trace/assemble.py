"""Columns from rows that a reader names one by one; for files whose times are whole nanoseconds already."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rocsolid.trace.columns import Columns, DeviceEvents, HostEvents, Kind, MemoryEvents, stack
from rocsolid.trace.gather import Words


class Assembler:
    """Takes rows; a row whose times make no sense is counted and left out."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.names, self.shapes, self.threads = Words(), Words(), Words()
        self.events = 0
        self.skipped = 0
        self.damage: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.counters: list[tuple[str, str, float]] = []  # kernel, counter, value
        self._device: list[tuple[int, ...]] = []
        self._host: dict[str, list[tuple[int, ...]]] = {"calls": [], "notes": []}

    def work(self, kind: Kind, name: str, start: object, end: object, **about: Any) -> None:  # noqa: ANN401 - any number
        """A kernel or a copy; `device`, `stream`, `correlation`, `bytes` and `shape` as far as they are known."""
        self.events += 1
        times = self._times(start, end)
        if times is None:
            return
        numbers = (number(about.get(key)) for key in ("device", "stream", "correlation", "bytes"))
        self._device.append((*times, kind, self.names[name], *numbers, self.shapes[str(about.get("shape", ""))]))

    def call(self, table: str, name: str, start: object, end: object, *, thread: str, correlation: object) -> None:
        """A runtime call (`calls`) or a marker (`notes`)."""
        self.events += 1
        times = self._times(start, end)
        if times is not None:
            self._host[table].append((*times, self.names[name], self.threads[thread], number(correlation)))

    def _times(self, start: object, end: object) -> tuple[int, int] | None:
        first, last = number(start), number(end)
        if first < 0 or last < first:
            self.skipped += 1
            return None
        return first, last

    def columns(self) -> Columns:
        """Everything so far."""
        rows = np.array(self._device, dtype=np.int64).reshape(-1, 9)
        device = DeviceEvents(
            start=rows[:, 0],
            end=rows[:, 1],
            kind=rows[:, 2].astype(np.uint8),
            name=rows[:, 3].astype(np.int32),
            device=rows[:, 4].astype(np.int32),
            stream=rows[:, 5],
            correlation=rows[:, 6],
            external=np.full(len(rows), -1, dtype=np.int64),
            bytes=rows[:, 7],
            shape=rows[:, 8].astype(np.int32),
        )
        return Columns(
            producer=self.producer,
            names=tuple(self.names),
            shapes=tuple(self.shapes),
            threads=tuple(self.threads),
            device=device,
            calls=_table(self._host["calls"]),
            ops=stack(HostEvents, []),
            notes=_table(self._host["notes"]),
            memory=stack(MemoryEvents, []),
            events=self.events,
            skipped=self.skipped,
            damage=tuple(self.damage),
            metadata=self.metadata,
            counters=counted(self.counters),
        )


def _table(given: list[tuple[int, ...]]) -> HostEvents:
    rows = np.array(given, dtype=np.int64).reshape(-1, 5)
    return HostEvents(
        start=rows[:, 0],
        end=rows[:, 1],
        name=rows[:, 2].astype(np.int32),
        thread=rows[:, 3].astype(np.int32),
        correlation=rows[:, 4],
        external=np.full(len(rows), -1, dtype=np.int64),
    )


def counted(values: list[tuple[str, str, float]]) -> Mapping[str, Mapping[str, tuple[int, float]]]:
    """By kernel and counter: how many dispatches, and the sum over them."""
    sums: dict[str, dict[str, tuple[int, float]]] = {}
    for kernel, counter, value in values:
        mine = sums.setdefault(kernel, {})
        count, total = mine.get(counter, (0, 0.0))
        mine[counter] = (count + 1, total + value)
    return sums


def number(value: object) -> int:
    """A whole number from what a file holds: 4, "4", "Agent 4"; -1 for none."""
    try:
        found = int(str(value).rsplit(" ", 1)[-1])
    except ValueError:
        return -1
    return found if abs(found) < 2**62 else -1


def shape_of(grid: tuple[object, ...], block: tuple[object, ...], **more: object) -> str:
    """Grid in work groups, as other vendors count it; block, registers and memory, as far as they are known."""
    sizes = [(number(g), number(b)) for g, b in zip(grid, block, strict=True)]
    groups = "×".join(str(-(-g // b)) if g >= 0 and b > 0 else "?" for g, b in sizes)
    parts = [f"grid {groups}, block {'×'.join(str(b) for _, b in sizes)}"]
    parts += [f"{value} {label.replace('_', ' ')}" for label, value in more.items() if number(value) > 0]
    return ", ".join(parts)
