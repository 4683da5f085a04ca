"""Finds when graphs were captured. During a capture, launches are recorded and the device is idle."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.model.trace import GraphCaptures
from rocsolid.trace.analysis.intervals import total, union
from rocsolid.trace.analysis.link_launches import LaunchLinks, events_named, row_mask
from rocsolid.trace.columns import Column, TraceColumns, sorted_unique

_BEGIN: Final = re.compile(r"(cuda|hip|cu)StreamBeginCapture")
_END: Final = re.compile(r"(cuda|hip|cu)StreamEndCapture")
_LAUNCH: Final = re.compile(r"(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel|cudaLaunch\b|hipExtLaunch")


@dataclass(frozen=True, kw_only=True)
class CaptureWindows:
    """The time intervals in which any thread captured a graph, and the counts of launches."""

    start: Column
    end: Column
    counts: GraphCaptures


def find_captures(columns: TraceColumns, links: LaunchLinks) -> CaptureWindows:
    """Captures from begin to end call. A begin or end outside the trace counts as the start or end of the trace."""
    calls = columns.calls
    begins, ends = events_named(columns, calls, _BEGIN), events_named(columns, calls, _END)
    launches = events_named(columns, calls, _LAUNCH)
    without_work = launches[~row_mask(links.call[links.call >= 0], len(calls))[launches]]
    windows: list[tuple[int, int]] = []
    for thread in sorted_unique(calls.thread[np.concatenate((begins, ends))]).tolist():
        thread_begins = calls.start[begins[calls.thread[begins] == thread]]
        thread_ends = calls.end[ends[calls.thread[ends] == thread]]
        windows += _pair(thread_begins, thread_ends, int(calls.start.min()), int(calls.end.max()))
    start, end = (np.array(column, dtype=np.int64) for column in (zip(*windows, strict=True) if windows else ([], [])))
    start, end = union(start, end)
    counts = GraphCaptures(
        count=len(windows),
        time_ns=total(start, end),
        recorded_launches=int(_inside(calls.start[without_work], start, end).sum()),
        launches_without_work=len(without_work),
        launches=len(launches),
    )
    return CaptureWindows(start=start, end=end, counts=counts)


def _pair(begins: Column, ends: Column, first: int, last: int) -> list[tuple[int, int]]:
    """Match the begin and end calls of one thread; captures on several streams may overlap."""
    moments = sorted([(int(at), 1) for at in begins] + [(int(at), -1) for at in ends])
    found, opened = [], list[int]()
    for at, kind in moments:
        if kind > 0:
            opened.append(at)
        else:
            found.append((opened.pop() if opened else first, at))
    return [*found, *((at, last) for at in opened)]


def _inside(moments: Column, start: Column, end: Column) -> Column:
    """Which moments are inside one of the sorted, disjoint intervals."""
    number = np.searchsorted(start, moments, side="right") - 1
    if not len(start):
        return np.zeros(len(moments), dtype=np.bool_)
    inside: Column = (number >= 0) & (moments <= end[np.maximum(number, 0)])
    return inside
