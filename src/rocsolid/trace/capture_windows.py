"""When graphs were captured: the host launches, and the device rests."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.model.trace import Captures
from rocsolid.trace.columns import Column, Columns, distinct
from rocsolid.trace.intervals import total, union
from rocsolid.trace.link_launches import Links, among, named

_BEGIN: Final = re.compile(r"(cuda|hip|cu)StreamBeginCapture")
_END: Final = re.compile(r"(cuda|hip|cu)StreamEndCapture")
_LAUNCH: Final = re.compile(r"(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel|cudaLaunch\b|hipExtLaunch")


@dataclass(frozen=True, kw_only=True)
class Capturing:
    """The stretches of time in which some thread captured, and what was counted in them."""

    start: Column
    end: Column
    answers: Captures


def captures(columns: Columns, links: Links) -> Capturing:
    """From each beginning to its end; one that is outside the trace lies at the trace's own."""
    calls = columns.calls
    begins, ends = named(columns, calls, _BEGIN), named(columns, calls, _END)
    launches = named(columns, calls, _LAUNCH)
    silent = launches[~among(links.call[links.call >= 0], len(calls))[launches]]
    stretches: list[tuple[int, int]] = []
    for thread in distinct(calls.thread[np.concatenate((begins, ends))]).tolist():
        of_begin = calls.start[begins[calls.thread[begins] == thread]]
        of_end = calls.end[ends[calls.thread[ends] == thread]]
        stretches += _pairs(of_begin, of_end, int(calls.start.min()), int(calls.end.max()))
    start, end = (
        np.array(column, dtype=np.int64) for column in (zip(*stretches, strict=True) if stretches else ([], []))
    )
    start, end = union(start, end)
    found = Captures(
        count=len(stretches),
        time_ns=total(start, end),
        recorded_launches=int(_inside(calls.start[silent], start, end).sum()),
        silent_launches=len(silent),
        launches=len(launches),
    )
    return Capturing(start=start, end=end, answers=found)


def _pairs(begins: Column, ends: Column, first: int, last: int) -> list[tuple[int, int]]:
    """Beginnings and ends of one thread in order of time; captures of several streams may overlap."""
    moments = sorted([(int(at), 1) for at in begins] + [(int(at), -1) for at in ends])
    found, opened = [], list[int]()
    for at, kind in moments:
        if kind > 0:
            opened.append(at)
        else:
            found.append((opened.pop() if opened else first, at))
    return [*found, *((at, last) for at in opened)]


def _inside(moments: Column, start: Column, end: Column) -> Column:
    number = np.searchsorted(start, moments, side="right") - 1
    if not len(start):
        return np.zeros(len(moments), dtype=np.bool_)
    inside: Column = (number >= 0) & (moments <= end[np.maximum(number, 0)])
    return inside
