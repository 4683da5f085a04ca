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
_SHORT: Final = {"hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD"}


@dataclass(frozen=True, kw_only=True)
class RowGroups:
    """Row numbers sorted by a key, and where each key begins and ends."""

    keys: Column
    order: Column
    begin: Column
    end: Column

    def __iter__(self) -> Iterator[tuple[int, Column]]:
        """Each key with its rows."""
        for number, key in enumerate(self.keys.tolist()):
            yield key, self.order[self.begin[number] : self.end[number]]


def group_rows(key: Column, then: Column | None = None) -> RowGroups:
    """Group rows by a key; within a group, rows are sorted by `then`."""
    order = np.argsort(key, kind="stable") if then is None else np.lexsort((then, key))
    keys, begin = np.unique(key[order], return_index=True)
    return RowGroups(keys=keys, order=order, begin=begin, end=np.append(begin[1:], len(order)))


def percentile(sorted_values: Column, share: float) -> int:
    """The value at that share of sorted values, without interpolation."""
    return int(sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))])


def kernel_rows(
    columns: TraceColumns, device: DeviceEvents, in_graph: Column, operator: Column
) -> tuple[KernelRow, ...]:
    """One row per kernel name, the most total time first."""
    length = device.end - device.start
    kernels = np.flatnonzero(device.kind == EventKind.KERNEL)
    found, starts = [], []
    for name, members in group_rows(device.name[kernels], length[kernels]):
        mine = kernels[members]
        times = length[mine]
        total = int(times.sum())
        found.append(
            KernelRow(
                name=columns.names[name],
                category=category(columns.names[name]),
                count=len(mine),
                total_ns=total,
                mean_ns=total / len(mine),
                p50_ns=percentile(times, 0.5),
                p99_ns=percentile(times, 0.99),
                graph_count=int(in_graph[mine].sum()),
                launch_config=(
                    columns.launch_configs[_heaviest(device.launch_config[mine], times)]
                    if columns.launch_configs
                    else ""
                ),
                operator=_most_common(columns, operator[mine]),
            )
        )
        starts.append(int(device.start[mine].min()))
    positions = np.argsort(np.argsort(np.array(starts, dtype=np.int64), kind="stable"))
    ordered = [replace(row, position=int(position)) for row, position in zip(found, positions, strict=True)]
    return tuple(sorted(ordered, key=lambda row: (-row.total_ns, row.name)))


def _heaviest(keys: Column, weights: Column) -> int:
    """The key with the largest sum of weights."""
    values, inverse = np.unique(keys, return_inverse=True)
    return int(values[np.argmax(np.bincount(inverse, weights=weights))])


def _most_common(columns: TraceColumns, names: Column) -> str:
    known, counts = np.unique(names, return_counts=True)
    best = int(known[np.argmax(counts)])
    return columns.names[best] if best >= 0 else ""


def category_times(columns: TraceColumns, device: DeviceEvents) -> tuple[CategoryTime, ...]:
    """Device time by category, the most first; copies and memsets count as `copy`."""
    counts: dict[Category, int] = {}
    times: dict[Category, int] = {}
    length = device.end - device.start
    for kind in EventKind:
        events = np.flatnonzero(device.kind == kind)
        for name, members in group_rows(device.name[events]):
            mine = category(columns.names[name]) if kind is EventKind.KERNEL else Category.COPY
            counts[mine] = counts.get(mine, 0) + len(members)
            times[mine] = times.get(mine, 0) + int(length[events[members]].sum())
    found = [CategoryTime(category=c, count=counts[c], time_ns=times[c]) for c in counts]
    return tuple(sorted(found, key=lambda row: -row.time_ns))


def operator_rows(columns: TraceColumns, device: DeviceEvents, operator: Column) -> tuple[OperatorRow, ...]:
    """Device time by launching operator; work without a known operator is one row with an empty name."""
    ops = columns.ops
    host = dict(_sums(ops.name, ops.end - ops.start)) if len(ops) else {}
    length = device.end - device.start
    found = [
        OperatorRow(
            name=columns.names[number] if number >= 0 else "",
            count=len(members),
            device_ns=int(length[members].sum()),
            host_ns=host.get(number, 0),
        )
        for number, members in group_rows(operator)
    ]
    return tuple(sorted(found, key=lambda row: -row.device_ns))


def _sums(key: Column, value: Column) -> list[tuple[int, int]]:
    keys, inverse = np.unique(key, return_inverse=True)
    sums = np.zeros(len(keys), dtype=np.int64)
    np.add.at(sums, inverse, value)
    return list(zip(keys.tolist(), sums.tolist(), strict=True))


def copy_rows(columns: TraceColumns, device: DeviceEvents) -> tuple[CopyRow, ...]:
    """Copies by direction and by kind of memory."""
    copies = np.flatnonzero(device.kind == EventKind.COPY)
    sums: dict[tuple[str, str], list[int]] = {}
    for name, members in group_rows(device.name[copies]):
        mine = copies[members]
        row = sums.setdefault(_direction(columns.names[name]), [0, 0, 0, 0])
        sizes = device.bytes[mine]
        for position, value in enumerate(
            (len(mine), sizes[sizes > 0].sum(), (device.end - device.start)[mine].sum(), (sizes < 0).sum())
        ):
            row[position] += int(value)
    found = [
        CopyRow(direction=d, memory=m, count=n, bytes=size, time_ns=time, unknown_size_count=unsized)
        for (d, m), (n, size, time, unsized) in sums.items()
    ]
    return tuple(sorted(found, key=lambda row: (-row.time_ns, row.direction)))


def _direction(name: str) -> tuple[str, str]:
    """The direction (HtoD, DtoH, ...) and the kind of host memory (pinned, pageable or unknown) in a copy's name."""
    found = _DIRECTION.search(name.replace("_TO_", "TO").replace("HOST", "Host").replace("DEVICE", "Device"))
    direction = found.group() if found else name
    direction = _SHORT.get(direction.lower(), direction)
    memory = "pinned" if "Pinned" in name else "pageable" if "Pageable" in name else ""
    return direction, memory
