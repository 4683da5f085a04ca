"""Unions, gaps and overlaps of time intervals. The starts and ends of the intervals are columns."""

from dataclasses import dataclass

import numpy as np

from rocsolid.trace.columns import Column


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The time that a set of events covers, and the gaps between them."""

    span_ns: int  # from the start of the first event to the end of the last
    busy_ns: int
    first_start: int
    gap_start: Column
    gap_end: Column
    row_before: Column  # for each gap, the row of the event that ended last before it
    row_after: Column  # for each gap, the row of the event that started at its end


def coverage(start: Column, end: Column) -> Coverage:
    """Compute the time that at least one event covers, and the gaps in which there is none."""
    order = np.lexsort((end, start))
    starts, ends = start[order], end[order]
    latest_end = np.maximum.accumulate(ends)
    gaps = np.flatnonzero(starts[1:] > latest_end[:-1]) + 1
    # Of all events before a gap, the one that ended last is the last that ended later than all events before it.
    new_latest = np.flatnonzero(np.append(True, ends[1:] > latest_end[:-1]))
    ended_last = new_latest[np.searchsorted(new_latest, gaps, side="left") - 1]
    span_ns = int(latest_end[-1] - starts[0])
    return Coverage(
        span_ns=span_ns,
        busy_ns=span_ns - int((starts[gaps] - latest_end[gaps - 1]).sum()),
        first_start=int(starts[0]),
        gap_start=latest_end[gaps - 1],
        gap_end=starts[gaps],
        row_before=order[ended_last],
        row_after=order[gaps],
    )


def union(start: Column, end: Column) -> tuple[Column, Column]:
    """Return disjoint, sorted intervals that cover the same time."""
    if len(start) == 0:
        return start, end
    order = np.argsort(start, kind="stable")
    starts, latest_end = start[order], np.maximum.accumulate(end[order])
    is_first = np.concatenate(([True], starts[1:] > latest_end[:-1]))
    last = np.append(np.flatnonzero(is_first)[1:] - 1, len(starts) - 1)
    return starts[is_first], latest_end[last]


def total_time(start: Column, end: Column) -> int:
    """Return the total duration of disjoint intervals."""
    return int((end - start).sum())


def covered_before(start: Column, end: Column, times: Column) -> Column:
    """Return for each time how much time before it the disjoint, sorted intervals cover."""
    durations = np.concatenate(([0], np.cumsum(end - start)))
    started = np.searchsorted(start, times, side="right")  # how many intervals start before each time
    last = np.maximum(started - 1, 0)
    inside = np.where(started > 0, np.minimum(times, end[last]) - start[last], 0)
    return durations[last] + np.where(started > 0, inside, 0)


def overlap(start: Column, end: Column, other_start: Column, other_end: Column) -> Column:
    """Return for each interval how much of it the union of the other intervals covers."""
    if len(other_start) == 0:
        return np.zeros(len(start), dtype=np.int64)
    union_start, union_end = union(other_start, other_end)
    return covered_before(union_start, union_end, end) - covered_before(union_start, union_end, start)
