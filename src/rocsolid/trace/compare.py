"""Compares two traces: work matched by operator and shape, then by operator, then by category; kernels by name."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.trace import (
    DeviceTrace,
    KernelChange,
    KernelChangeKind,
    KernelRow,
    MatchLevel,
    MetricChange,
    OperatorChange,
    OperatorRow,
    TraceComparison,
    TraceFile,
)
from rocsolid.trace.analysis.categories import category

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
_MIN_CHANGE: Final = 0.03  # a kernel whose time changes by less is reported as "same"
_SPLIT_SUM: Final = re.compile(r"split_?[kK]_?reduce|PostGSU|splitKreduce|reduce_segments")
Pair = tuple[KernelRow, KernelRow]


def compare(before: TraceFile, after: TraceFile) -> TraceComparison:
    """Compare the busiest device of each trace. The devices can be of different vendors."""
    old, new = _busiest(before), _busiest(after)
    operators = tuple(sorted(_operator_changes(old, new), key=lambda row: -abs(row.delta_ns)))
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
        operators=operators,
        by_operator=_by_operator(operators),
        before_steps=len(before.steps),
        after_steps=len(after.steps),
    )


def _operator_changes(old: DeviceTrace, new: DeviceTrace) -> Iterator[OperatorChange]:
    """Match the rows of both devices level by level. What is left at one level is matched at the next."""
    before, after = list(old.operators), list(new.operators)
    levels: tuple[tuple[MatchLevel, Callable[[OperatorRow], Hashable]], ...] = (
        (
            MatchLevel.SHAPE,
            lambda row: (row.name, row.shape, row.element_type, row.category) if row.name and row.shape else None,
        ),
        (MatchLevel.OPERATOR, lambda row: (row.name, row.category) if row.name else None),
        (MatchLevel.CATEGORY, lambda row: row.category),
    )
    for level, key in levels:
        groups = _grouped(before, key), _grouped(after, key)
        common = groups[0].keys() & groups[1].keys() - {None}
        for value in common:
            yield _operator_change(level, groups[0][value], groups[1][value])
        before = [row for row in before if key(row) not in common]
        after = [row for row in after if key(row) not in common]
    for row in before:
        yield _operator_change(MatchLevel.NONE, [row], [])
    for row in after:
        yield _operator_change(MatchLevel.NONE, [], [row])


def _grouped(rows: Iterable[OperatorRow], key: Callable[[OperatorRow], Hashable]) -> dict[Hashable, list[OperatorRow]]:
    groups: dict[Hashable, list[OperatorRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _operator_change(level: MatchLevel, before: Sequence[OperatorRow], after: Sequence[OperatorRow]) -> OperatorChange:
    first = (before or after)[0]
    return OperatorChange(
        match=level,
        operator="" if level is MatchLevel.CATEGORY else first.name,
        shape=first.shape if level in (MatchLevel.SHAPE, MatchLevel.NONE) else "",
        category=first.category,
        before_count=sum(row.count for row in before),
        after_count=sum(row.count for row in after),
        before_ns=sum(row.device_ns for row in before),
        after_ns=sum(row.device_ns for row in after),
        before_kernel=_main_kernel(before),
        after_kernel=_main_kernel(after),
    )


def _main_kernel(rows: Sequence[OperatorRow]) -> str:
    shares = [share for row in rows for share in row.kernels]
    return max(shares, key=lambda share: share.time_ns).name if shares else ""


def _by_operator(changes: Iterable[OperatorChange]) -> tuple[MetricChange, ...]:
    """Add up the changes by operator, or by category where the operator is unknown."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in changes:
        total = sums[row.operator or f"other {row.category.value}"]
        total[0] += row.before_ns
        total[1] += row.after_ns
    rows = [MetricChange(name=name, before=before, after=after) for name, (before, after) in sums.items()]
    return tuple(sorted(rows, key=lambda row: -abs(row.after - row.before)))


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
        lambda row: (row.operator, category(row.name), _is_split_sum(row.name)) if row.operator else None,
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
    total, mean = _ratio(before.total_ns, after.total_ns), _ratio(before.mean_ns, after.mean_ns)
    if abs(total - 1) <= _MIN_CHANGE:
        return KernelChangeKind.SAME
    if total < 1:
        return KernelChangeKind.FASTER if mean < 1 - _MIN_CHANGE else KernelChangeKind.FEWER
    return KernelChangeKind.SLOWER if mean > 1 + _MIN_CHANGE else KernelChangeKind.MORE


def _ratio(before: float, after: float) -> float:
    return after / before if before else 1.0


def _is_split_sum(name: str) -> bool:
    """Return whether a kernel adds up the parts of a split matrix product, which another vendor may not need."""
    return bool(_SPLIT_SUM.search(name))


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
