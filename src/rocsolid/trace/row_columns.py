"""Columns from rows that a reader names one by one; for files whose times are whole nanoseconds already."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rocsolid.trace.columns import Columns, DeviceEvents, Growing, HostEvents, Kind, MemoryEvents, Tally
from rocsolid.trace.event_columns import Words


class Assembler:
    """Takes rows; a row whose times make no sense is counted and left out."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.names, self.shapes, self.threads = Words(), Words(), Words()
        self.events = 0
        self.skipped = 0
        self.damage: list[str] = []
        self.metadata: dict[str, Any] = {}
        self._counted: dict[tuple[str, str, object], tuple[float, int]] = {}  # value and time
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

    def count(self, kernel: str, counter: str, value: object, *, dispatch: object, length: int = -1) -> None:
        """A counter of one dispatch; parts of it, such as those of each channel of a cache, add up."""
        try:
            amount = float(str(value))
        except ValueError:
            amount = math.nan
        if not math.isfinite(amount):
            self.skipped += 1
            return
        key = (kernel, counter, len(self._counted) if dispatch is None else dispatch)
        before, _ = self._counted.get(key, (0.0, -1))
        self._counted[key] = (before + amount, length)

    def device(self, number: int, name: str, *, gpu: bool, compute_units: object = 0, waves: object = 0) -> None:
        """A processor that the file describes."""
        listed = self.metadata.setdefault("deviceProperties", [])
        facts = {"compute_units": told(compute_units), "waves_per_unit": told(waves)}
        listed.append({"id": number, "name": name, "gpu": gpu, **facts})

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
            ops=Growing(HostEvents).whole(),
            notes=_table(self._host["notes"]),
            memory=Growing(MemoryEvents).whole(),
            events=self.events,
            skipped=self.skipped,
            damage=tuple(self.damage),
            metadata=self.metadata,
            counters=_tallied(self._counted),
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


def _tallied(counted: Mapping[tuple[str, str, object], tuple[float, int]]) -> Mapping[str, Mapping[str, Tally]]:
    sums: dict[str, dict[str, Tally]] = {}
    for (kernel, counter, _), (value, length) in counted.items():
        tally = sums.setdefault(kernel, {}).setdefault(counter, Tally())
        tally.count += 1
        tally.total += value
        if length > 0:
            tally.timed += 1
            tally.time_ns += length
    return sums


def told(value: object) -> int:
    """A count that a file may tell; 0 for none."""
    return max(0, number(value))


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
