"""Arithmetic of stretches of time, on sorted columns."""

from dataclasses import dataclass

import numpy as np

from rocsolid.trace.columns import Column


@dataclass(frozen=True, kw_only=True)
class Cover:
    """What a set of events covers, and the gaps that it leaves."""

    span: int
    busy: int
    first: int
    gap_start: Column
    gap_end: Column
    before: Column  # the event that ended last before the gap, by number
    after: Column  # the event that ends the gap


def cover(start: Column, end: Column) -> Cover:
    """The union of the events, with the gaps between."""
    order = np.lexsort((end, start))
    starts, ends = start[order], end[order]
    latest = np.maximum.accumulate(ends)
    where = np.flatnonzero(starts[1:] > latest[:-1]) + 1
    # The events that reached further than all before them; the last of these before a gap ended last.
    records = np.flatnonzero(np.append(True, ends[1:] > latest[:-1]))
    reaching = records[np.searchsorted(records, where, side="left") - 1]
    span = int(latest[-1] - starts[0])
    return Cover(
        span=span,
        busy=span - int((starts[where] - latest[where - 1]).sum()),
        first=int(starts[0]),
        gap_start=latest[where - 1],
        gap_end=starts[where],
        before=order[reaching],
        after=order[where],
    )


def union(start: Column, end: Column) -> tuple[Column, Column]:
    """Disjoint, sorted stretches that cover the same time."""
    if len(start) == 0:
        return start, end
    order = np.argsort(start, kind="stable")
    starts, latest = start[order], np.maximum.accumulate(end[order])
    fresh = np.concatenate(([True], starts[1:] > latest[:-1]))
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(starts) - 1)
    return starts[fresh], latest[last]


def total(start: Column, end: Column) -> int:
    """The length of disjoint stretches."""
    return int((end - start).sum())


def covered_before(start: Column, end: Column, moment: Column) -> Column:
    """How much of disjoint, sorted stretches lies before each moment."""
    lengths = np.concatenate(([0], np.cumsum(end - start)))
    number = np.searchsorted(start, moment, side="right")
    inside = np.where(
        number > 0, np.minimum(moment, end[np.maximum(number - 1, 0)]) - start[np.maximum(number - 1, 0)], 0
    )
    return lengths[np.maximum(number - 1, 0)] + np.where(number > 0, inside, 0)


def overlap(start: Column, end: Column, other_start: Column, other_end: Column) -> Column:
    """For each stretch, how much of it lies in the union of the others."""
    if len(other_start) == 0:
        return np.zeros(len(start), dtype=np.int64)
    left, right = union(other_start, other_end)
    return covered_before(left, right, end) - covered_before(left, right, start)
