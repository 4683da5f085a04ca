"""Two runs side by side: kernels matched by operator and place, time and idle time by what caused them."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.trace import (
    Change,
    DeviceTrace,
    FigureChange,
    KernelChange,
    KernelRow,
    TraceDifference,
    TraceFile,
)

_FIGURES: Final = (
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
_NOTICEABLE: Final = 0.03
Pair = tuple[KernelRow, KernelRow]


def compare(before: TraceFile, after: TraceFile) -> TraceDifference:
    """What changed from one run to another, on the busiest device of each; vendors may differ."""
    old, new = _busiest(before), _busiest(after)
    return TraceDifference(
        before=before.file,
        after=after.file,
        before_model=old.model,
        after_model=new.model,
        figures=tuple(FigureChange(name=n, before=getattr(old, n), after=getattr(new, n)) for n in _FIGURES),
        categories=_changes(
            [(row.category.value, row.time_ns) for row in old.categories],
            [(row.category.value, row.time_ns) for row in new.categories],
        ),
        idle=_changes(
            [(row.cause.value, row.time_ns) for row in old.idle], [(row.cause.value, row.time_ns) for row in new.idle]
        ),
        kernels=tuple(sorted(_kernels(old, new), key=lambda row: -abs(row.delta_ns))),
    )


def _busiest(file: TraceFile) -> DeviceTrace:
    if not file.devices:
        msg = f"{file.file} holds no work of any device, so there is nothing to compare"
        raise InputError(msg)
    return max(file.devices, key=lambda device: device.busy_ns)


def _changes(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> tuple[FigureChange, ...]:
    old, new = dict(before), dict(after)
    rows = [FigureChange(name=name, before=old.get(name, 0), after=new.get(name, 0)) for name in {**old, **new}]
    return tuple(sorted(rows, key=lambda row: -max(row.before, row.after)))


def _kernels(old: DeviceTrace, new: DeviceTrace) -> Iterable[KernelChange]:
    pairs, gone, added = match(old.kernels, new.kernels)
    for before, after in pairs:
        yield KernelChange(
            change=_verdict(before, after),
            category=after.category,
            operator=after.operator or before.operator,
            before=before.name,
            after=after.name,
            before_count=before.count,
            after_count=after.count,
            before_ns=before.total_ns,
            after_ns=after.total_ns,
        )
    for row in gone:
        yield _lone(row, Change.GONE)
    for row in added:
        yield _lone(row, Change.ADDED)


def match(
    before: Iterable[KernelRow], after: Iterable[KernelRow]
) -> tuple[list[Pair], list[KernelRow], list[KernelRow]]:
    """Pairs, and what is left on either side.

    First those of one name and operator, then of one name; then, within one operator and category, in the order in
    which they first ran, because libraries and vendors call the kernel at the same place differently.
    """
    old, new = list(before), list(after)
    pairs: list[Pair] = []
    keys: tuple[Callable[[KernelRow], Hashable], ...] = (
        lambda row: (row.name, row.operator),
        lambda row: row.name,
        lambda row: (row.operator, row.category) if row.operator else None,
    )
    for key in keys:
        found = _paired(old, new, key)
        pairs += found
        taken_old, taken_new = {id(a) for a, _ in found}, {id(b) for _, b in found}
        old = [row for row in old if id(row) not in taken_old]
        new = [row for row in new if id(row) not in taken_new]
    return pairs, old, new


def _paired(old: list[KernelRow], new: list[KernelRow], key: Callable[[KernelRow], Hashable]) -> list[Pair]:
    waiting: dict[Hashable, list[KernelRow]] = defaultdict(list)
    for row in sorted(old, key=lambda row: row.position):
        if key(row) is not None:
            waiting[key(row)].append(row)
    found = []
    for row in sorted(new, key=lambda row: row.position):
        candidates = waiting.get(key(row)) if key(row) is not None else None
        if candidates:
            found.append((candidates.pop(0), row))
    return found


def _verdict(before: KernelRow, after: KernelRow) -> Change:
    if before.name != after.name:
        return Change.REPLACED
    ratio = after.mean_ns / before.mean_ns if before.mean_ns else 1.0
    if ratio < 1 - _NOTICEABLE:
        return Change.FASTER
    return Change.SLOWER if ratio > 1 + _NOTICEABLE else Change.SAME


def _lone(row: KernelRow, change: Change) -> KernelChange:
    gone = change is Change.GONE
    return KernelChange(
        change=change,
        category=row.category,
        operator=row.operator,
        before=row.name if gone else "",
        after="" if gone else row.name,
        before_count=row.count if gone else 0,
        after_count=0 if gone else row.count,
        before_ns=row.total_ns if gone else 0,
        after_ns=0 if gone else row.total_ns,
    )
