"""Device time by kernel, category, operator and copy direction."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rocsolid.model.trace import (
    Category,
    CategoryTime,
    CopyRow,
    DeviceRoofline,
    KernelRow,
    KernelShare,
    OperatorRow,
    WorkOrder,
)
from rocsolid.trace.analysis.categories import category, operator_category
from rocsolid.trace.analysis.cost_model import operator_cost, parse_inputs
from rocsolid.trace.analysis.kernel_labels import kernel_labels
from rocsolid.trace.analysis.link_launches import Origins
from rocsolid.trace.columns import Column, DeviceEvents, EventKind, TraceColumns, sorted_unique

CATEGORIES: Final = tuple(Category)
_MAX_SHARES: Final = 20
_MAX_TABLE: Final = 1 << 22
_MAX_ORDERED: Final = 20_000
_TF32: Final = re.compile(r"tf32|s1688|tensorop")

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
    in_order = key[rows]
    begin = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])) if len(rows) else np.zeros(0, dtype=np.int64)
    return RowGroups(keys=in_order[begin], sorted_rows=rows, begin=begin, end=np.append(begin[1:], len(rows)))


def distinct(values: Column) -> tuple[Column, Column]:
    """Return each value once, sorted, and the position of each value among them. A table is faster than sorting."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low >= _MAX_TABLE:
        keys, inverse = np.unique(values, return_inverse=True)
        return keys, inverse
    used = np.zeros(high - low + 1, dtype=np.bool_)
    used[values - low] = True
    return np.flatnonzero(used)[: len(values)] + low, (np.cumsum(used, dtype=np.int32) - 1)[values - low]


def percentile(sorted_values: Column, fraction: float) -> int:
    """Return a percentile without interpolation. A fraction of 0.5 is the median."""
    return int(sorted_values[min(len(sorted_values) - 1, int(fraction * len(sorted_values)))])


def event_categories(columns: TraceColumns, device: DeviceEvents, operator: Column) -> Column:
    """Return the category of each event as an index into `CATEGORIES`. Copies and memsets are `copy`."""
    pairs = device.name.astype(np.int64) * (len(columns.names) + 1) + operator + 1
    keys, inverse = distinct(pairs)
    names, operators = np.divmod(keys, len(columns.names) + 1)
    found = [
        CATEGORIES.index(category(columns.names[name], columns.names[op - 1] if op else ""))
        for name, op in zip(names.tolist(), operators.tolist(), strict=True)
    ]
    categories = np.array(found, dtype=np.int8)[inverse] if found else np.zeros(0, dtype=np.int8)
    return np.where(device.kind == EventKind.KERNEL, categories, CATEGORIES.index(Category.COPY))


def kernel_rows(
    columns: TraceColumns, device: DeviceEvents, in_graph: Column, operator: Column, categories: Column
) -> tuple[KernelRow, ...]:
    """Return one row per kernel name, the most total time first."""
    duration = device.end - device.start
    kernels = np.flatnonzero(device.kind == EventKind.KERNEL)
    rows, starts = [], []
    for name, members in group_rows(device.name[kernels], duration[kernels]):
        runs = kernels[members]
        times = duration[runs]
        total = int(times.sum())
        main_operator = _heaviest(operator[runs], times)
        rows.append(
            KernelRow(
                name=columns.names[name],
                category=CATEGORIES[_heaviest(categories[runs], times)],
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
                operator=columns.names[main_operator] if main_operator >= 0 else "",
            )
        )
        starts.append(int(device.start[runs].min()))
    positions = np.argsort(np.argsort(np.array(starts, dtype=np.int64), kind="stable"))
    labels = kernel_labels([row.name for row in rows])
    ordered = [
        replace(row, position=int(position), label=labels.get(row.name, ""))
        for row, position in zip(rows, positions, strict=True)
    ]
    return tuple(sorted(ordered, key=lambda row: (-row.total_ns, row.name)))


def _heaviest(keys: Column, weights: Column) -> int:
    """Return the key with the largest sum of weights."""
    if keys[0] == keys[-1] and (keys == keys[0]).all():
        return int(keys[0])
    values, inverse = np.unique(keys, return_inverse=True)
    return int(values[np.argmax(np.bincount(inverse, weights=weights))])


def category_times(device: DeviceEvents, categories: Column) -> tuple[CategoryTime, ...]:
    """Return the device time of each category, the most first."""
    duration = device.end - device.start
    rows = [
        CategoryTime(category=CATEGORIES[key], count=len(members), time_ns=int(duration[members].sum()))
        for key, members in group_rows(categories)
    ]
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def operator_rows(
    columns: TraceColumns,
    device: DeviceEvents,
    origins: Origins,
    in_graph: Column,
    categories: Column,
    peaks: DeviceRoofline | None,
) -> tuple[tuple[OperatorRow, ...], WorkOrder]:
    """Return the device time by operator, shapes, category and whether a graph replay launched it, the most first.

    Also return the order of the events.
    """
    ops = columns.ops
    host = dict(_sums(_pairs(ops.name, ops.detail, columns), ops.end - ops.start)) if len(ops) else {}
    pairs = _pairs(origins.operator, origins.detail, columns)
    categories = _with_operators(columns, origins.operator, categories)
    _, compact = distinct(pairs)
    key = (compact * len(CATEGORIES) + categories) * 2 + in_graph
    rows: list[tuple[OperatorRow, Column]] = []
    for _, members in group_rows(key):
        row = _operator_row(
            columns,
            device,
            origins,
            members,
            host,
            category=CATEGORIES[int(categories[members[0]])],
            in_graph=bool(in_graph[members[0]]),
        )
        rows.append((replace(row, roofline=_roofline(row, peaks)), members))
    rows.sort(key=lambda pair: (-pair[0].device_ns, pair[0].name, pair[0].shape))
    return tuple(row for row, _ in rows), _work_order(columns, device, rows)


def _work_order(columns: TraceColumns, device: DeviceEvents, rows: Sequence[tuple[OperatorRow, Column]]) -> WorkOrder:
    """Return all events in the order of their start; nothing if they are too many."""
    if not 0 < len(device) <= _MAX_ORDERED:
        return WorkOrder()
    events = np.concatenate([members for _, members in rows])
    operator = np.concatenate([np.full(len(members), index) for index, (_, members) in enumerate(rows)])
    in_order = np.lexsort((device.stream[events], device.start[events]))
    events = events[in_order]
    names, name = np.unique(device.name[events], return_inverse=True)
    return WorkOrder(
        names=tuple(columns.names[number] for number in names.tolist()),
        name=tuple(name.tolist()),
        operator=tuple(operator[in_order].tolist()),
        time_ns=tuple((device.end - device.start)[events].tolist()),
    )


def _with_operators(columns: TraceColumns, operator: Column, categories: Column) -> Column:
    """Return the category of each event; that of its operator where it is clear, also for its copies and memsets."""
    known = [(n, operator_category(columns.names[n])) for n in sorted_unique(operator).tolist() if n >= 0]
    by_operator = np.full(len(columns.names) + 1, -1, dtype=np.int8)
    for number, found in known:
        by_operator[number] = CATEGORIES.index(found) if found else -1
    own = by_operator[operator]  # -1, no operator, is the last entry
    return np.where(own >= 0, own, categories)


def _pairs(name: Column, detail: Column, columns: TraceColumns) -> Column:
    return name.astype(np.int64) * (len(columns.details) + 1) + detail


def _operator_row(
    columns: TraceColumns,
    device: DeviceEvents,
    origins: Origins,
    members: Column,
    host: Mapping[int, int],
    **known: Any,  # noqa: ANN401 - the other fields of the row
) -> OperatorRow:
    """Return the row of some events, without its roofline."""
    duration = device.end[members] - device.start[members]
    first = members[0]
    operator_id, detail_id = int(origins.operator[first]), int(origins.detail[first])
    name = columns.names[operator_id] if operator_id >= 0 else ""
    detail = columns.details[detail_id] if detail_id >= 0 else ""
    inputs = parse_inputs(detail)
    shares = [
        KernelShare(name=columns.names[kernel], count=len(runs), time_ns=int(duration[runs].sum()))
        for kernel, runs in group_rows(device.name[members])
    ]
    shares.sort(key=lambda share: -share.time_ns)
    calls = len(sorted_unique(origins.call[members])) if operator_id >= 0 else 0
    cost = operator_cost(name, detail) if detail else None
    pair = int(_pairs(origins.operator[first : first + 1], origins.detail[first : first + 1], columns)[0])
    return OperatorRow(
        **known,
        name=name,
        count=len(members),
        device_ns=int(duration.sum()),
        host_ns=host.get(pair, 0),
        shape=inputs.text,
        element_type=inputs.element_type,
        calls=calls,
        kernels=tuple(shares[:_MAX_SHARES]),
        flops=cost.flops * calls if cost else None,
        bytes=cost.bytes * calls if cost else None,
        arithmetic=cost.arithmetic if cost else "",
    )


def _roofline(row: OperatorRow, peaks: DeviceRoofline | None) -> float | None:
    """Return the least possible time divided by the time it took; None when the cost or the peaks are unknown."""
    if row.flops is None or peaks is None:
        return None
    arithmetic = row.arithmetic
    if arithmetic == "fp32" and row.kernels and _TF32.search(row.kernels[0].name):
        arithmetic = "tf32"
    peak = peaks.tflops.get(arithmetic)
    if not row.device_ns or (arithmetic and peak is None):
        return None
    compute_ns = (row.flops or 0) / peak / 1e3 if peak else 0.0
    return max(compute_ns, (row.bytes or 0) / peaks.memory_gb_per_s) / row.device_ns


def with_rates(rows: Sequence[KernelRow], operators: Sequence[OperatorRow]) -> tuple[KernelRow, ...]:
    """Add TFLOP/s, GB/s and the share of the roofline to kernels: the cost of an operator counts for its longest kernel."""
    sums: dict[str, list[float]] = {}
    for operator in operators:
        if operator.flops is None or not operator.kernels:
            continue
        main = operator.kernels[0]
        found = sums.setdefault(main.name, [0.0, 0.0, 0.0, 0.0])
        found[0] += operator.flops
        found[1] += operator.bytes or 0.0
        found[2] += main.time_ns
        found[3] += (operator.roofline or 0.0) * operator.device_ns
    rated = []
    for row in rows:
        flops, moved, time_ns, least_ns = sums.get(row.name, (0.0, 0.0, 0.0, 0.0))
        if time_ns:
            row = replace(  # noqa: PLW2901 - the same kernel, with more known about it
                row,
                tflops=flops / time_ns / 1e3 or None,
                gb_per_s=moved / time_ns or None,
                roofline=least_ns / time_ns or None,
            )
        rated.append(row)
    return tuple(rated)


def _sums(key: Column, value: Column) -> list[tuple[int, int]]:
    keys, inverse = distinct(key)
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
