"""Compares two traces: work matched by operator and shape, then by operator, by order and by category; kernels by name."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.trace import (
    Category,
    CpuOperatorRow,
    CpuTrace,
    DeviceTrace,
    DoubtKind,
    KernelChange,
    KernelChangeKind,
    KernelRow,
    MatchLevel,
    MetricChange,
    OperatorChange,
    OperatorRow,
    TraceComparison,
    TraceFile,
    WorkOrder,
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
)
_METRICS_OF_LAUNCHES: Final = ("graph_launches", "graph_kernel_count", "graph_kernel_time_ns")
_MIN_CHANGE: Final = 0.03  # a kernel whose time changes by less is reported as "same"
_SPLIT_SUM: Final = re.compile(r"split_?[kK]_?reduce|PostGSU|splitKreduce|reduce_segments")
_COMPILED: Final = re.compile(r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction")
_MAX_ALIGNED: Final = 64_000_000  # events of one trace times events of the other: one byte each
_MAX_RATIO: Final = 8  # of the times of two kernels that are matched by order
_MIN_ALIGNED_SHARE: Final = 1 / 3  # of the time of both kernels, to call one the replacement of the other
_PAIR, _SKIP_BEFORE, _SKIP_AFTER = 1, 2, 3
_CATEGORIES: Final = tuple(Category)
_OUTSIDE: Final = "(outside modules)"
Pair = tuple[KernelRow, KernelRow]


def compare(before: TraceFile, after: TraceFile) -> TraceComparison:
    """Compare the busiest device of each trace. The devices can be of different vendors.

    If both traces have no GPU work, their CPU operators are compared.
    """
    if before.cpu and after.cpu:
        return _compare_cpu(before, before.cpu, after, after.cpu)
    old, new = _busiest(before), _busiest(after)
    operators = tuple(sorted(_operator_changes(old, new), key=lambda row: -abs(row.delta_ns)))
    knows_launches = not any(doubt.kind is DoubtKind.NO_HOST_EVENTS for doubt in (*before.doubts, *after.doubts))
    metrics = (*_METRICS, *(_METRICS_OF_LAUNCHES if knows_launches else ()))
    aligned: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in operators:
        if row.match is MatchLevel.ORDER:
            sums = aligned[row.before_kernel, row.after_kernel]
            sums[:] = [sums[0] + row.before_ns, sums[1] + row.after_ns]
    return TraceComparison(
        before=before.file,
        after=after.file,
        before_model=old.model,
        after_model=new.model,
        metrics=tuple(MetricChange(name=name, before=getattr(old, name), after=getattr(new, name)) for name in metrics),
        categories=_metric_changes(
            [(row.category.value, row.time_ns) for row in old.categories],
            [(row.category.value, row.time_ns) for row in new.categories],
        ),
        idle=_metric_changes(
            [(row.cause.value, row.time_ns) for row in old.idle], [(row.cause.value, row.time_ns) for row in new.idle]
        )
        if knows_launches
        else (),
        kernels=tuple(sorted(_kernel_changes(old, new, aligned), key=lambda row: -abs(row.delta_ns))),
        operators=operators,
        by_operator=_by_operator(operators),
        modules=_module_changes((before, old), (after, new)),
        doubts=tuple(_doubts(before, old, "before")) + tuple(_doubts(after, new, "after")),
        labels={row.name: row.label for device in (old, new) for row in device.kernels if row.label},
        steps=_step_changes(before, after),
        before_steps=len(before.steps),
        after_steps=len(after.steps),
    )


def _step_changes(before: TraceFile, after: TraceFile) -> tuple[MetricChange, ...]:
    return tuple(
        MetricChange(name=f"step {number}", before=a.total_ns, after=b.total_ns)
        for number, (a, b) in enumerate(zip(before.steps, after.steps, strict=False), 1)
    )


def _compare_cpu(before: TraceFile, old: CpuTrace, after: TraceFile, new: CpuTrace) -> TraceComparison:
    """Compare the own times of CPU operators by name."""
    rows = {row.name: row for row in old.operators}, {row.name: row for row in new.operators}
    operators = [_cpu_change(name, *(side.get(name) for side in rows)) for name in {**rows[0], **rows[1]}]
    modules: tuple[MetricChange, ...] = ()
    if before.modules and after.modules:
        times = [
            [*own, (_OUTSIDE, sum(row.own_ns for row in cpu.operators) - sum(ns for _, ns in own))]
            for file, cpu in ((before, old), (after, new))
            for own in [[(row.name, row.own_ns) for row in file.modules]]
        ]
        modules = _metric_changes(*times)
    return TraceComparison(
        before=before.file,
        after=after.file,
        before_model="CPU",
        after_model="CPU",
        metrics=tuple(
            MetricChange(name=name, before=getattr(old, name), after=getattr(new, name))
            for name in ("span_ns", "busy_ns", "thread_count")
        ),
        categories=(),
        idle=(),
        kernels=(),
        operators=tuple(sorted(operators, key=lambda row: -abs(row.delta_ns))),
        by_operator=tuple(
            sorted(
                (MetricChange(name=r.operator, before=r.before_ns, after=r.after_ns) for r in operators),
                key=lambda row: -abs(row.after - row.before),
            )
        ),
        modules=modules,
        steps=_step_changes(before, after),
        before_steps=len(before.steps),
        after_steps=len(after.steps),
        cpu=True,
    )


def _cpu_change(name: str, before: CpuOperatorRow | None, after: CpuOperatorRow | None) -> OperatorChange:
    return OperatorChange(
        match=MatchLevel.OPERATOR if before and after else MatchLevel.NONE,
        operator=name,
        shape="",
        category=category(name),
        before_count=before.calls if before else 0,
        after_count=after.calls if after else 0,
        before_ns=before.own_ns if before else 0,
        after_ns=after.own_ns if after else 0,
        before_kernel="",
        after_kernel="",
    )


def _doubts(file: TraceFile, device: DeviceTrace, side: str) -> Iterator[str]:
    for doubt in file.doubts:
        if doubt.device in ("", device.device):
            yield f"{side}: {doubt.text}"


def _module_changes(*sides: tuple[TraceFile, DeviceTrace]) -> tuple[MetricChange, ...]:
    """Compare the own device time of modules; what no module launched is one more row."""
    if not all(file.modules for file, _ in sides):
        return ()
    times = []
    for file, device in sides:
        own = [(row.name, row.own_ns) for row in file.modules]
        times.append([*own, (_OUTSIDE, sum(row.time_ns for row in device.categories) - sum(ns for _, ns in own))])
    return _metric_changes(*times)


def _operator_changes(old: DeviceTrace, new: DeviceTrace) -> Iterator[OperatorChange]:
    """Match the rows of both devices level by level. What is left at one level is matched at the next."""
    before, after = list(old.operators), list(new.operators)
    levels: tuple[tuple[MatchLevel, Callable[[OperatorRow], Hashable]], ...] = (
        (
            MatchLevel.SHAPE,
            lambda row: (row.name, row.shape, row.element_type, row.category) if row.name and row.shape else None,
        ),
        # The number of a compiled region says nothing about its work.
        (
            MatchLevel.OPERATOR,
            lambda row: (row.name, row.category) if row.name and not _COMPILED.match(row.name) else None,
        ),
        (MatchLevel.ORDER, lambda row: row),
        (MatchLevel.CATEGORY, lambda row: row.category),
    )
    for level, key in levels:
        if level is MatchLevel.ORDER:
            changes, before, after = _match_by_order(old, new, before, after)
            yield from changes
            continue
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


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The work of one trace that has no match yet, in order."""

    rows: list[OperatorRow]
    order: WorkOrder
    events: list[int]  # positions in `order`


def _match_by_order(
    old: DeviceTrace, new: DeviceTrace, before: list[OperatorRow], after: list[OperatorRow]
) -> tuple[list[OperatorChange], list[OperatorRow], list[OperatorRow]]:
    """Match work of the same category that comes in the same order, and return what is left of each row."""
    sides = [_unmatched_work(old, before), _unmatched_work(new, after)]
    if not 0 < len(sides[0].events) * len(sides[1].events) <= _MAX_ALIGNED:
        return [], before, after
    groups: dict[tuple[str, str, str, str, Category], list[int]] = defaultdict(lambda: [0, 0, 0])
    used: list[dict[int, list[tuple[str, int]]]] = [defaultdict(list), defaultdict(list)]
    for pair in _aligned(*sides):
        rows, names, times = [], [], []
        for side, event, taken in zip(sides, pair, used, strict=True):
            order = side.order
            rows.append(side.rows[order.operator[event]])
            names.append(order.names[order.name[event]])
            times.append(order.time_ns[event])
            taken[order.operator[event]].append((names[-1], times[-1]))
        # The same kernel belongs to the same operator, also where a replay hides it.
        same = rows[0].name == rows[1].name or (names[0] == names[1] and not (rows[0].name and rows[1].name))
        known = rows[0] if rows[0].name else rows[1]
        operator, shape = (known.name, known.shape) if same else ("", "")
        group = groups[names[0], names[1], operator, shape, known.category]
        group[:] = [group[0] + 1, group[1] + times[0], group[2] + times[1]]
    changes = [
        OperatorChange(
            match=MatchLevel.ORDER,
            operator=operator,
            shape=shape,
            category=category_,
            before_count=count,
            after_count=count,
            before_ns=before_ns,
            after_ns=after_ns,
            before_kernel=before_kernel,
            after_kernel=after_kernel,
        )
        for (before_kernel, after_kernel, operator, shape, category_), (count, before_ns, after_ns) in groups.items()
    ]
    return changes, _left(sides[0], before, used[0]), _left(sides[1], after, used[1])


def _unmatched_work(device: DeviceTrace, unmatched: list[OperatorRow]) -> _Work:
    wanted = {id(row) for row in unmatched}
    rows, order = list(device.operators), device.order
    lengths = {len(column) for column in (order.name, order.operator, order.time_ns)}
    in_range = all(
        0 <= number < size
        for column, size in ((order.name, len(order.names)), (order.operator, len(rows)))
        for number in column
    )
    if len(lengths) > 1 or not in_range:  # a saved report that was changed
        return _Work(rows=rows, order=WorkOrder(), events=[])
    chosen = [id(row) in wanted for row in rows]
    return _Work(
        rows=rows,
        order=device.order,
        events=[event for event, row in enumerate(device.order.operator) if chosen[row]],
    )


def _left(side: _Work, rows: list[OperatorRow], used: dict[int, list[tuple[str, int]]]) -> list[OperatorRow]:
    """Return the rows without the events that were matched."""
    taken = {id(side.rows[index]): events for index, events in used.items()}
    left = []
    for row in rows:
        events = taken.get(id(row), [])
        if len(events) == row.count:
            continue
        counts, times = Counter(name for name, _ in events), Counter[str]()
        for name, time_ns in events:
            times[name] += time_ns
        shares = [
            replace(share, count=share.count - counts[share.name], time_ns=share.time_ns - times[share.name])
            for share in row.kernels
        ]
        left.append(
            replace(
                row,
                count=row.count - len(events),
                device_ns=row.device_ns - times.total(),
                kernels=tuple(share for share in shares if share.count),
            )
        )
    return left


def _aligned(before: _Work, after: _Work) -> Iterator[tuple[int, int]]:
    """Yield pairs of events of the same category or kernel, both in order, that have the most time in common.

    A pair has the shorter of its two times in common, after the times of `before` are scaled to the same total. So the
    long kernels decide, and the short ones are matched between them.
    """
    import numpy as np

    sides = []
    ids: dict[str, int] = {}
    for side in (before, after):
        names = [_is_split_sum(name) for name in side.order.names]
        kind = [
            2 * _CATEGORIES.index(side.rows[side.order.operator[event]].category) + names[side.order.name[event]]
            for event in side.events
        ]
        time = np.array([side.order.time_ns[event] for event in side.events], dtype=np.float64)
        number = [ids.setdefault(side.order.names[side.order.name[event]], len(ids)) for event in side.events]
        sides.append((np.array(kind, dtype=np.int8), np.array(number, dtype=np.int32), time))
    (kind_a, name_a, time_a), (kind_b, name_b, time_b) = sides
    time_a = time_a * (time_b.sum() / max(time_a.sum(), 1.0))
    step = np.zeros((len(kind_a), len(kind_b)), dtype=np.uint8)
    best = np.zeros(len(kind_b) + 1)
    for row in range(len(kind_a)):
        common, longer = np.minimum(time_a[row], time_b), np.maximum(time_a[row], time_b)
        fits = ((kind_b == kind_a[row]) | (name_b == name_a[row])) & (longer <= _MAX_RATIO * common)
        matched = np.where(fits, best[:-1] + common, -1.0)
        skipped = best[1:]
        new = np.maximum.accumulate(np.maximum(matched, skipped))
        step[row] = np.where(matched == new, _PAIR, np.where(skipped == new, _SKIP_BEFORE, _SKIP_AFTER))
        best = np.concatenate((best[:1], new))
    pairs = []
    row, column = len(kind_a) - 1, len(kind_b) - 1
    while row >= 0 and column >= 0:
        taken = step[row, column]
        if taken == _PAIR:
            pairs.append((before.events[row], after.events[column]))
        row, column = row - (taken != _SKIP_AFTER), column - (taken != _SKIP_BEFORE)
    yield from reversed(pairs)


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
        known = row.operator and not _COMPILED.match(row.operator)
        total = sums[row.operator if known else f"other {row.category.value}"]
        total[0] += row.before_ns
        total[1] += row.after_ns
    rows = [MetricChange(name=name, before=before, after=after) for name, (before, after) in sums.items()]
    return tuple(sorted(rows, key=lambda row: -abs(row.after - row.before)))


def _busiest(file: TraceFile) -> DeviceTrace:
    if not file.devices:
        msg = f"{file.file} has no GPU work, so it can only be compared with another trace of CPU operators"
        raise InputError(msg)
    return max(file.devices, key=lambda device: device.busy_ns)


def _metric_changes(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> tuple[MetricChange, ...]:
    old, new = dict(before), dict(after)
    rows = [MetricChange(name=name, before=old.get(name, 0), after=new.get(name, 0)) for name in {**old, **new}]
    return tuple(sorted(rows, key=lambda row: -max(row.before, row.after)))


def _kernel_changes(
    old: DeviceTrace, new: DeviceTrace, aligned: Mapping[tuple[str, str], Sequence[int]]
) -> Iterable[KernelChange]:
    pairs, removed, added = match_kernels(old.kernels, new.kernels)
    by_order, removed, added = _pair_by_order(removed, added, aligned)
    pairs += by_order
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


def _pair_by_order(
    old: list[KernelRow], new: list[KernelRow], aligned: Mapping[tuple[str, str], Sequence[int]]
) -> tuple[list[Pair], list[KernelRow], list[KernelRow]]:
    """Pair the kernels that are at the same places of both traces for the most time."""
    before, after = {row.name: row for row in old}, {row.name: row for row in new}
    pairs: list[Pair] = []
    for first, second in sorted(aligned, key=lambda names: -sum(aligned[names])):
        if first not in before or second not in after:
            continue
        times = before[first].total_ns, after[second].total_ns
        if all(ns >= _MIN_ALIGNED_SHARE * total for ns, total in zip(aligned[first, second], times, strict=True)):
            pairs.append((before.pop(first), after.pop(second)))
    return pairs, list(before.values()), list(after.values())


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
