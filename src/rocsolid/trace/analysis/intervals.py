"""Arithmetic of time intervals in columns."""

from dataclasses import dataclass

import numpy as np

from rocsolid.trace.columns import Column


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The time that a set of events covers, and the gaps between them."""

    span: int
    busy: int
    first: int  # the start of the first event
    gap_start: Column
    gap_end: Column
    before: Column  # for each gap, the row of the event that ended last before it
    after: Column  # for each gap, the row of the event that ended it


def coverage(start: Column, end: Column) -> Coverage:
    """The union of the events and the gaps between them."""
    order = np.lexsort((end, start))
    starts, ends = start[order], end[order]
    latest = np.maximum.accumulate(ends)
    gaps = np.flatnonzero(starts[1:] > latest[:-1]) + 1
    # The events that end later than all events before them. The last of these before a gap is the one that ended last.
    records = np.flatnonzero(np.append(True, ends[1:] > latest[:-1]))
    ended_last = records[np.searchsorted(records, gaps, side="left") - 1]
    span = int(latest[-1] - starts[0])
    return Coverage(
        span=span,
        busy=span - int((starts[gaps] - latest[gaps - 1]).sum()),
        first=int(starts[0]),
        gap_start=latest[gaps - 1],
        gap_end=starts[gaps],
        before=order[ended_last],
        after=order[gaps],
    )


def union(start: Column, end: Column) -> tuple[Column, Column]:
    """Disjoint, sorted intervals that cover the same time."""
    if len(start) == 0:
        return start, end
    order = np.argsort(start, kind="stable")
    starts, latest = start[order], np.maximum.accumulate(end[order])
    is_first = np.concatenate(([True], starts[1:] > latest[:-1]))
    last = np.append(np.flatnonzero(is_first)[1:] - 1, len(starts) - 1)
    return starts[is_first], latest[last]


def total(start: Column, end: Column) -> int:
    """The total length of disjoint intervals."""
    return int((end - start).sum())


def covered_before(start: Column, end: Column, moment: Column) -> Column:
    """For each moment, how much time the disjoint, sorted intervals cover before it."""
    lengths = np.concatenate(([0], np.cumsum(end - start)))
    number = np.searchsorted(start, moment, side="right")
    inside = np.where(
        number > 0, np.minimum(moment, end[np.maximum(number - 1, 0)]) - start[np.maximum(number - 1, 0)], 0
    )
    return lengths[np.maximum(number - 1, 0)] + np.where(number > 0, inside, 0)


def overlap(start: Column, end: Column, other_start: Column, other_end: Column) -> Column:
    """For each interval, how much of it the union of the other intervals covers."""
    if len(other_start) == 0:
        return np.zeros(len(start), dtype=np.int64)
    left, right = union(other_start, other_end)
    return covered_before(left, right, end) - covered_before(left, right, start)
