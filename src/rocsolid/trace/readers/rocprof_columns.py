"""Builds the columns of rocprofv3 files, row by row. Times in these files are integers in nanoseconds."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rocsolid.trace.columns import (
    CounterSum,
    DeviceEvents,
    EventKind,
    GrowingTable,
    HostEvents,
    IdTable,
    MemoryEvents,
    TraceColumns,
)


class RocprofColumnBuilder:
    """Collects rows. A row with invalid times is counted as skipped."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.names, self.launch_configs, self.threads = IdTable(), IdTable(), IdTable()
        self.events = 0
        self.skipped = 0
        self.damage: list[str] = []
        self.metadata: dict[str, Any] = {}
        # By kernel, counter and dispatch: the value, and the duration of the dispatch in ns (-1 when unknown).
        self._counter_values: dict[tuple[str, str, object], tuple[float, int]] = {}
        self._device: list[tuple[int, ...]] = []
        self._host: dict[str, list[tuple[int, ...]]] = {"calls": [], "annotations": []}

    def add_device_event(self, kind: EventKind, name: str, start: object, end: object, **more: Any) -> None:  # noqa: ANN401 - any number
        """Add a kernel or a copy, with `device`, `stream`, `correlation`, `bytes` and `launch_config` where known."""
        self.events += 1
        times = self._times(start, end)
        if times is None:
            return
        numbers = (parse_integer(more.get(key)) for key in ("device", "stream", "correlation", "bytes"))
        config = self.launch_configs[str(more.get("launch_config", ""))]
        self._device.append((*times, kind, self.names[name], *numbers, config))

    def add_host_event(
        self, table: str, name: str, start: object, end: object, *, thread: str, correlation: object
    ) -> None:
        """Add a runtime call (`calls`) or a marker (`annotations`)."""
        self.events += 1
        times = self._times(start, end)
        if times is not None:
            self._host[table].append((*times, self.names[name], self.threads[thread], parse_integer(correlation)))

    def add_counter(self, kernel: str, counter: str, value: object, *, dispatch: object, duration_ns: int = -1) -> None:
        """Add a value of a counter in one dispatch. Several values for one dispatch are added up."""
        try:
            amount = float(str(value))
        except ValueError:
            amount = math.nan
        if not math.isfinite(amount):
            self.skipped += 1
            return
        key = (kernel, counter, len(self._counter_values) if dispatch is None else dispatch)
        previous, _ = self._counter_values.get(key, (0.0, -1))
        self._counter_values[key] = (previous + amount, duration_ns)

    def add_agent(self, device_id: int, name: str, *, gpu: bool, compute_units: object = 0, waves: object = 0) -> None:
        """Add a CPU or GPU that the file describes. `waves` is the most wavefronts that a compute unit can hold."""
        listed = self.metadata.setdefault("deviceProperties", [])
        sizes = {"compute_units": max(0, parse_integer(compute_units)), "waves_per_unit": max(0, parse_integer(waves))}
        listed.append({"id": device_id, "name": name, "gpu": gpu, **sizes})

    def _times(self, start: object, end: object) -> tuple[int, int] | None:
        first, last = parse_integer(start), parse_integer(end)
        if first < 0 or last < first:
            self.skipped += 1
            return None
        return first, last

    def columns(self) -> TraceColumns:
        """Return all rows as columns."""
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
            launch_config=rows[:, 8].astype(np.int32),
            detail=np.zeros(len(rows), dtype=np.int32),
        )
        return TraceColumns(
            producer=self.producer,
            names=tuple(self.names),
            launch_configs=tuple(self.launch_configs),
            threads=tuple(self.threads),
            device=device,
            calls=_host_events(self._host["calls"]),
            ops=GrowingTable(HostEvents).finish(),
            annotations=_host_events(self._host["annotations"]),
            memory=GrowingTable(MemoryEvents).finish(),
            events=self.events,
            skipped=self.skipped,
            damage=tuple(self.damage),
            metadata=self.metadata,
            counters=_counter_sums(self._counter_values),
        )


def _host_events(values: list[tuple[int, ...]]) -> HostEvents:
    rows = np.array(values, dtype=np.int64).reshape(-1, 5)
    return HostEvents(
        start=rows[:, 0],
        end=rows[:, 1],
        name=rows[:, 2].astype(np.int32),
        thread=rows[:, 3].astype(np.int32),
        correlation=rows[:, 4],
        external=np.full(len(rows), -1, dtype=np.int64),
        detail=np.zeros(len(rows), dtype=np.int32),
    )


def _counter_sums(
    values: Mapping[tuple[str, str, object], tuple[float, int]],
) -> Mapping[str, Mapping[str, CounterSum]]:
    sums: dict[str, dict[str, CounterSum]] = {}
    for (kernel, counter, _), (value, duration_ns) in values.items():
        total = sums.setdefault(kernel, {}).setdefault(counter, CounterSum())
        total.count += 1
        total.total += value
        if duration_ns > 0:
            total.timed += 1
            total.time_ns += duration_ns
    return sums


def parse_integer(value: object) -> int:
    """Return the integer in a value such as 4, "4" or "Agent 4"; -1 when there is none."""
    try:
        found = int(str(value).rsplit(" ", 1)[-1])
    except ValueError:
        return -1
    return found if abs(found) < 2**62 else -1


def launch_config_text(
    grid: tuple[object, ...],
    block: tuple[object, ...],
    *,
    vgprs: object,
    sgprs: object,
    lds_bytes: object,
    scratch_bytes: object,
) -> str:
    """Return grid, block, registers and memory of a launch, where the file has them.

    The file counts the grid in work items. We count it in work groups, as CUDA does.
    """
    sizes = [(parse_integer(g), parse_integer(b)) for g, b in zip(grid, block, strict=True)]
    groups = "×".join(str(-(-g // b)) if g >= 0 and b > 0 else "?" for g, b in sizes)
    parts = [f"grid {groups}, block {'×'.join(str(b) for _, b in sizes)}"]
    resources = ((vgprs, "VGPRs"), (sgprs, "SGPRs"), (lds_bytes, "B LDS"), (scratch_bytes, "B scratch"))
    parts += [f"{value} {label}" for value, label in resources if parse_integer(value) > 0]
    return ", ".join(parts)
