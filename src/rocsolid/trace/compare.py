"""Compares two traces: kernels matched by name or operator, device time by category, idle time by cause."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.trace import (
    DeviceTrace,
    KernelChange,
    KernelChangeKind,
    KernelRow,
    MetricChange,
    TraceComparison,
    TraceFile,
)

_METRICS: Final = (
    "span_ns",
    "busy_ns",
    "idle_ns",
    "kernel_count",
    "kernel_time_ns",
    "copy_count",
    "copy_bytes",
    "graph_launches",
    "graph_kernel_count",
    "graph_kernel_time_ns",
)
_MIN_CHANGE: Final = 0.03  # a kernel whose mean time changes by less is reported as "same"
Pair = tuple[KernelRow, KernelRow]


def compare(before: TraceFile, after: TraceFile) -> TraceComparison:
    """Compare the busiest device of each trace. The devices can be of different vendors."""
    old, new = _busiest(before), _busiest(after)
    return TraceComparison(
        before=before.file,
        after=after.file,
        before_model=old.model,
        after_model=new.model,
        metrics=tuple(
            MetricChange(name=name, before=getattr(old, name), after=getattr(new, name)) for name in _METRICS
        ),
        categories=_metric_changes(
            [(row.category.value, row.time_ns) for row in old.categories],
            [(row.category.value, row.time_ns) for row in new.categories],
        ),
        idle=_metric_changes(
            [(row.cause.value, row.time_ns) for row in old.idle], [(row.cause.value, row.time_ns) for row in new.idle]
        ),
        kernels=tuple(sorted(_kernel_changes(old, new), key=lambda row: -abs(row.delta_ns))),
    )


def _busiest(file: TraceFile) -> DeviceTrace:
    if not file.devices:
        msg = f"{file.file} has no GPU work, so there is nothing to compare"
        raise InputError(msg)
    return max(file.devices, key=lambda device: device.busy_ns)


def _metric_changes(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> tuple[MetricChange, ...]:
    old, new = dict(before), dict(after)
    rows = [MetricChange(name=name, before=old.get(name, 0), after=new.get(name, 0)) for name in {**old, **new}]
    return tuple(sorted(rows, key=lambda row: -max(row.before, row.after)))


def _kernel_changes(old: DeviceTrace, new: DeviceTrace) -> Iterable[KernelChange]:
    pairs, removed, added = match_kernels(old.kernels, new.kernels)
    for before, after in pairs:
        yield KernelChange(
            change=_change_kind(before, after),
            category=after.category,
            operator=after.operator or before.operator,
            before=before.name,
            after=after.name,
            before_count=before.count,
            after_count=after.count,
            before_ns=before.total_ns,
            after_ns=after.total_ns,
        )
    for row in removed:
        yield _unmatched(row, KernelChangeKind.REMOVED)
    for row in added:
        yield _unmatched(row, KernelChangeKind.ADDED)


def match_kernels(
    before: Iterable[KernelRow], after: Iterable[KernelRow]
) -> tuple[list[Pair], list[KernelRow], list[KernelRow]]:
    """Return the matched pairs, the unmatched kernels of `before` and the unmatched kernels of `after`.

    Kernels are matched by name and operator. Those that are left are matched by name only, and then by operator and
    category in the order of their first run: libraries and vendors name the kernels of an operator differently.
    """
    old, new = list(before), list(after)
    pairs: list[Pair] = []
    keys: tuple[Callable[[KernelRow], Hashable], ...] = (
        lambda row: (row.name, row.operator),
        lambda row: row.name,
        lambda row: (row.operator, row.category) if row.operator else None,
    )
    for key in keys:
        new_pairs = _pair_by(old, new, key)
        pairs += new_pairs
        paired_old, paired_new = {id(a) for a, _ in new_pairs}, {id(b) for _, b in new_pairs}
        old = [row for row in old if id(row) not in paired_old]
        new = [row for row in new if id(row) not in paired_new]
    return pairs, old, new


def _pair_by(old: list[KernelRow], new: list[KernelRow], key: Callable[[KernelRow], Hashable]) -> list[Pair]:
    unpaired: dict[Hashable, list[KernelRow]] = defaultdict(list)
    for row in sorted(old, key=lambda row: row.position):
        if key(row) is not None:
            unpaired[key(row)].append(row)
    pairs = []
    for row in sorted(new, key=lambda row: row.position):
        candidates = unpaired.get(key(row)) if key(row) is not None else None
        if candidates:
            pairs.append((candidates.pop(0), row))
    return pairs


def _change_kind(before: KernelRow, after: KernelRow) -> KernelChangeKind:
    if before.name != after.name:
        return KernelChangeKind.REPLACED
    ratio = after.mean_ns / before.mean_ns if before.mean_ns else 1.0
    if ratio < 1 - _MIN_CHANGE:
        return KernelChangeKind.FASTER
    return KernelChangeKind.SLOWER if ratio > 1 + _MIN_CHANGE else KernelChangeKind.SAME


def _unmatched(row: KernelRow, change: KernelChangeKind) -> KernelChange:
    removed = change is KernelChangeKind.REMOVED
    return KernelChange(
        change=change,
        category=row.category,
        operator=row.operator,
        before=row.name if removed else "",
        after="" if removed else row.name,
        before_count=row.count if removed else 0,
        after_count=0 if removed else row.count,
        before_ns=row.total_ns if removed else 0,
        after_ns=0 if removed else row.total_ns,
    )
