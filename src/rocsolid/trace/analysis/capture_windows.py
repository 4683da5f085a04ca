"""Finds the times at which graphs were captured. During a capture, launches are recorded and do not run."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.model.trace import GraphCaptures
from rocsolid.trace.analysis.intervals import total_time, union
from rocsolid.trace.analysis.link_launches import LaunchLinks, events_named, row_mask
from rocsolid.trace.columns import Column, TraceColumns, sorted_unique

_BEGIN_CAPTURE: Final = re.compile(r"(cuda|hip|cu)StreamBeginCapture")
_END_CAPTURE: Final = re.compile(r"(cuda|hip|cu)StreamEndCapture")
_LAUNCH_KERNEL: Final = re.compile(r"(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel|cudaLaunch\b|hipExtLaunch")


@dataclass(frozen=True, kw_only=True)
class CaptureWindows:
    """The time intervals in which at least one thread captured a graph, and the numbers for the report."""

    start: Column
    end: Column
    counts: GraphCaptures


def find_captures(columns: TraceColumns, links: LaunchLinks) -> CaptureWindows:
    """Find the captures: the time from each call that begins a capture to the call that ends it.

    If one of these calls is not in the trace, the start or end of the trace is used instead.
    """
    calls = columns.calls
    begins, ends = events_named(columns, calls, _BEGIN_CAPTURE), events_named(columns, calls, _END_CAPTURE)
    launches = events_named_launch(columns)
    without_work = launches[~row_mask(links.call_row[links.call_row >= 0], len(calls))[launches]]
    windows: list[tuple[int, int]] = []
    for thread in sorted_unique(calls.thread[np.concatenate((begins, ends))]).tolist():
        thread_begins = calls.start[begins[calls.thread[begins] == thread]]
        thread_ends = calls.end[ends[calls.thread[ends] == thread]]
        windows += _pair(thread_begins, thread_ends, int(calls.start.min()), int(calls.end.max()))
    start, end = (np.array(column, dtype=np.int64) for column in (zip(*windows, strict=True) if windows else ([], [])))
    start, end = union(start, end)
    counts = GraphCaptures(
        count=len(windows),
        time_ns=total_time(start, end),
        recorded_launches=int(inside(calls.start[without_work], start, end).sum()),
        launches_without_work=len(without_work),
        launches=len(launches),
    )
    return CaptureWindows(start=start, end=end, counts=counts)


def events_named_launch(columns: TraceColumns) -> Column:
    """Return the rows of the calls that launch one kernel."""
    return events_named(columns, columns.calls, _LAUNCH_KERNEL)


def _pair(begins: Column, ends: Column, trace_start: int, trace_end: int) -> list[tuple[int, int]]:
    """Match the begin and end calls of one thread. Captures on several streams can be nested."""
    calls = sorted(
        [(int(time), True) for time in begins] + [(int(time), False) for time in ends]
    )  # False first: at the same time, an end comes before a begin
    windows, open_begins = [], list[int]()
    for time, is_begin in calls:
        if is_begin:
            open_begins.append(time)
        else:
            windows.append((open_begins.pop() if open_begins else trace_start, time))
    return [*windows, *((begin, trace_end) for begin in open_begins)]


def inside(times: Column, start: Column, end: Column) -> Column:
    """Return for each time whether it is inside one of the sorted, disjoint intervals."""
    interval = np.searchsorted(start, times, side="right") - 1  # the last interval that starts before the time
    if not len(start):
        return np.zeros(len(times), dtype=np.bool_)
    inside: Column = (interval >= 0) & (times <= end[np.maximum(interval, 0)])
    return inside
