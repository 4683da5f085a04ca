"""Device time by kernel, category, operator and copy direction."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocsolid.model.trace import Category, CategoryTime, CopyRow, KernelRow, OperatorRow
from rocsolid.trace.analysis.categories import category
from rocsolid.trace.columns import Column, DeviceEvents, EventKind, TraceColumns

_DIRECTION: Final = re.compile(
    r"(HtoD|DtoH|DtoD|HtoH|PtoP|HtoA|AtoH|HostToDevice|DeviceToHost|DeviceToDevice)", re.IGNORECASE
)
_SHORT_DIRECTIONS: Final = {"hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD"}


@dataclass(frozen=True, kw_only=True)
class RowGroups:
    """Rows grouped by a key: `sorted_rows[begin[i]:end[i]]` are the rows with `keys[i]`."""

    keys: Column
    sorted_rows: Column
    begin: Column
    end: Column

    def __iter__(self) -> Iterator[tuple[int, Column]]:
        """Yield each key with its rows."""
        for index, key in enumerate(self.keys.tolist()):
            yield key, self.sorted_rows[self.begin[index] : self.end[index]]


def group_rows(key: Column, sort_by: Column | None = None) -> RowGroups:
    """Group rows by a key. The rows of a group are sorted by `sort_by`."""
    rows = np.argsort(key, kind="stable") if sort_by is None else np.lexsort((sort_by, key))
    keys, begin = np.unique(key[rows], return_index=True)
    return RowGroups(keys=keys, sorted_rows=rows, begin=begin, end=np.append(begin[1:], len(rows)))


def percentile(sorted_values: Column, fraction: float) -> int:
    """Return a percentile without interpolation. A fraction of 0.5 is the median."""
    return int(sorted_values[min(len(sorted_values) - 1, int(fraction * len(sorted_values)))])


def kernel_rows(
    columns: TraceColumns, device: DeviceEvents, in_graph: Column, operator: Column
) -> tuple[KernelRow, ...]:
    """Return one row per kernel name, the most total time first."""
    duration = device.end - device.start
    kernels = np.flatnonzero(device.kind == EventKind.KERNEL)
    rows, starts = [], []
    for name, members in group_rows(device.name[kernels], duration[kernels]):
        runs = kernels[members]
        times = duration[runs]
        total = int(times.sum())
        rows.append(
            KernelRow(
                name=columns.names[name],
                category=category(columns.names[name]),
                count=len(runs),
                total_ns=total,
                mean_ns=total / len(runs),
                p50_ns=percentile(times, 0.5),
                p99_ns=percentile(times, 0.99),
                graph_count=int(in_graph[runs].sum()),
                launch_config=(
                    columns.launch_configs[_heaviest(device.launch_config[runs], times)]
                    if columns.launch_configs
                    else ""
                ),
                operator=_most_common(columns, operator[runs]),
            )
        )
        starts.append(int(device.start[runs].min()))
    positions = np.argsort(np.argsort(np.array(starts, dtype=np.int64), kind="stable"))
    ordered = [replace(row, position=int(position)) for row, position in zip(rows, positions, strict=True)]
    return tuple(sorted(ordered, key=lambda row: (-row.total_ns, row.name)))


def _heaviest(keys: Column, weights: Column) -> int:
    """Return the key with the largest sum of weights."""
    values, inverse = np.unique(keys, return_inverse=True)
    return int(values[np.argmax(np.bincount(inverse, weights=weights))])


def _most_common(columns: TraceColumns, names: Column) -> str:
    known, counts = np.unique(names, return_counts=True)
    best = int(known[np.argmax(counts)])
    return columns.names[best] if best >= 0 else ""


def category_times(columns: TraceColumns, device: DeviceEvents) -> tuple[CategoryTime, ...]:
    """Return the device time of each category, the most first. Copies and memsets count as `copy`."""
    counts: dict[Category, int] = {}
    times: dict[Category, int] = {}
    duration = device.end - device.start
    for kind in EventKind:
        events = np.flatnonzero(device.kind == kind)
        for name, members in group_rows(device.name[events]):
            group = category(columns.names[name]) if kind is EventKind.KERNEL else Category.COPY
            counts[group] = counts.get(group, 0) + len(members)
            times[group] = times.get(group, 0) + int(duration[events[members]].sum())
    rows = [CategoryTime(category=group, count=counts[group], time_ns=times[group]) for group in counts]
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def operator_rows(columns: TraceColumns, device: DeviceEvents, operator: Column) -> tuple[OperatorRow, ...]:
    """Return the device time by launching operator. Work without a known operator is one row with an empty name."""
    ops = columns.ops
    host_times = dict(_sums(ops.name, ops.end - ops.start)) if len(ops) else {}
    duration = device.end - device.start
    rows = [
        OperatorRow(
            name=columns.names[name_id] if name_id >= 0 else "",
            count=len(members),
            device_ns=int(duration[members].sum()),
            host_ns=host_times.get(name_id, 0),
        )
        for name_id, members in group_rows(operator)
    ]
    return tuple(sorted(rows, key=lambda row: -row.device_ns))


def _sums(key: Column, value: Column) -> list[tuple[int, int]]:
    keys, inverse = np.unique(key, return_inverse=True)
    sums = np.zeros(len(keys), dtype=np.int64)
    np.add.at(sums, inverse, value)
    return list(zip(keys.tolist(), sums.tolist(), strict=True))


def copy_rows(columns: TraceColumns, device: DeviceEvents) -> tuple[CopyRow, ...]:
    """Return the copies by direction and by kind of memory."""
    copies = np.flatnonzero(device.kind == EventKind.COPY)
    sums: dict[tuple[str, str], list[int]] = {}
    for name, members in group_rows(device.name[copies]):
        group = copies[members]
        row = sums.setdefault(_direction(columns.names[name]), [0, 0, 0, 0])
        sizes = device.bytes[group]
        for position, value in enumerate(
            (len(group), sizes[sizes > 0].sum(), (device.end - device.start)[group].sum(), (sizes < 0).sum())
        ):
            row[position] += int(value)
    rows = [
        CopyRow(direction=direction, memory=memory, count=n, bytes=size, time_ns=time, unknown_size_count=unsized)
        for (direction, memory), (n, size, time, unsized) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, row.direction)))


def _direction(name: str) -> tuple[str, str]:
    """Return the direction (HtoD, DtoH, ...) and the host memory (pinned, pageable or empty) in the name of a copy."""
    found = _DIRECTION.search(name.replace("_TO_", "TO").replace("HOST", "Host").replace("DEVICE", "Device"))
    direction = found.group() if found else name
    direction = _SHORT_DIRECTIONS.get(direction.lower(), direction)
    memory = "pinned" if "Pinned" in name else "pageable" if "Pageable" in name else ""
    return direction, memory
