"""Finds the operators of kernels in graph replays from a trace of the capture, by the order and names of the launches."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

import numpy as np

from rocsolid.model.trace import CaptureMatch
from rocsolid.trace.analysis.capture_windows import events_named_launch, find_captures, inside
from rocsolid.trace.analysis.link_launches import (
    LaunchLinks,
    Origins,
    call_operators,
    events_named,
    link_launches,
    row_mask,
)
from rocsolid.trace.columns import Column, EventKind, TraceColumns

_MARK: Final = re.compile(r"rocsolid graph [0-9a-f]+$")  # `torchapi.graphs.graph_marks` writes it
_KERNEL: Final = 3  # the position of the kernel's name in the details of a launch call
_MAX_COMPARISONS: Final = 20_000_000
_CALL_IDS: Final = 1 << 40  # above the rows of all operators in the trace of the replays


@dataclass(frozen=True, kw_only=True)
class CapturedLaunches:
    """The launches of one captured graph, in order."""

    source: int  # which trace of a capture
    calls: Column  # their rows in that trace
    kernels: tuple[str, ...]  # their names; empty where the trace does not record them, as on CUDA
    mark: str = ""  # tells the graphs of `rs.capture(..., annotate=True)` apart


@dataclass(frozen=True, kw_only=True)
class ReplayOrigins:
    """The trace of the replays with the operators of the captures."""

    columns: TraceColumns  # with the names and shapes of these operators
    origins: Origins
    source: Column  # for each device event, the number of the trace of its capture; -1 for none
    launch: Column  # the row of its launch call in that trace
    match: CaptureMatch


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """The times in which graphs were captured or replayed, as `rs.capture(..., annotate=True)` marks them."""

    start: Column
    end: Column
    names: list[str]

    def at(self, time: int) -> set[str]:
        """Return all marks at a time; marks can be nested."""
        return {self.names[row] for row in np.flatnonzero((self.start <= time) & (time <= self.end)).tolist()}


def _marks(columns: TraceColumns) -> _Marks:
    annotations = columns.annotations
    rows = events_named(columns, annotations, _MARK)
    names = [columns.names[number] for number in annotations.name[rows].tolist()]
    return _Marks(start=annotations.start[rows], end=annotations.end[rows], names=names)


def captured_launches(capture: TraceColumns, source: int = 0) -> list[CapturedLaunches]:
    """Return the launches of each graph that was captured in a trace."""
    links = link_launches(capture)
    windows = find_captures(capture, links)
    launches = events_named_launch(capture)
    launches = launches[~row_mask(links.call_row[links.call_row >= 0], len(capture.calls))[launches]]
    launches = launches[np.argsort(capture.calls.start[launches], kind="stable")]
    times = capture.calls.start[launches]
    if len(windows.start):
        launches = launches[inside(times, windows.start, windows.end)]
        window = np.searchsorted(windows.start, capture.calls.start[launches], side="right")
        groups = [launches[window == number] for number in range(1, len(windows.start) + 1)]
    else:  # the calls that begin and end a capture may not be in the trace
        groups = [launches]
    marks = _marks(capture)
    return [
        CapturedLaunches(
            source=source,
            calls=calls,
            kernels=tuple(_kernel_name(capture, row) for row in calls.tolist()),
            mark=min(marks.at(int(capture.calls.start[calls[0]])), default=""),
        )
        for calls in groups
        if len(calls)
    ]


def _kernel_name(capture: TraceColumns, call: int) -> str:
    parts = capture.details[int(capture.calls.detail[call])].split("\0")
    try:
        name = json.loads(parts[_KERNEL]) if len(parts) > _KERNEL and parts[_KERNEL] else ""
    except ValueError:
        return ""
    return name if isinstance(name, str) else ""


def add_captures(
    columns: TraceColumns, links: LaunchLinks, origins: Origins, captures: Sequence[TraceColumns], file: str
) -> ReplayOrigins:
    """Give each kernel in a graph replay the operator, the shapes and the launch call of its capture."""
    graphs = [graph for source, capture in enumerate(captures) for graph in captured_launches(capture, source)]
    marks = _marks(columns)
    device = columns.device
    kernels = np.flatnonzero(links.in_graph & (device.kind == EventKind.KERNEL))
    kernels = kernels[np.lexsort((device.start[kernels], device.correlation[kernels]))]
    source, launch = (np.full(len(device), -1, dtype=np.int64) for _ in range(2))
    call = origins.call.copy()
    known: dict[tuple[frozenset[str], tuple[int, ...]], tuple[int, Column]] = {}
    edges = np.flatnonzero(np.diff(device.correlation[kernels])) + 1
    for number, replay in enumerate(np.split(kernels, edges) if len(kernels) else []):
        marked = (
            frozenset(marks.at(int(columns.calls.start[links.call_row[replay[0]]]))) if marks.names else frozenset()
        )
        key = marked, tuple(device.name[replay].tolist())
        if key not in known:
            own = [graph for graph in graphs if graph.mark in marked]
            known[key] = _match([columns.names[name] for name in key[1]], own or graphs)
        source[replay], launch[replay] = known[key]
        call[replay] = np.where(launch[replay] >= 0, _CALL_IDS * (number + 1) + launch[replay], call[replay])
    source[launch < 0] = -1
    with_operator = 0
    operator, detail = origins.operator.copy(), origins.detail.copy()
    for number, capture in enumerate(captures):
        events = np.flatnonzero(source == number)
        rows = call_operators(capture, launch[events])
        events, rows = events[rows >= 0], rows[rows >= 0]
        with_operator += len(events)
        names, operator[events] = _joined(columns.names, capture.names, capture.ops.name[rows])
        details, detail[events] = _joined(columns.details, capture.details, capture.ops.detail[rows])
        columns = replace(columns, names=names, details=details)
        # Several kernels of one call of an operator count as one call.
        call[events] = (call[events] // _CALL_IDS) * _CALL_IDS + rows
    match = CaptureMatch(
        file=file,
        graphs=len(graphs),
        launches=sum(len(graph.calls) for graph in graphs),
        kernels=len(kernels),
        matched_kernels=int((launch >= 0).sum()),
        kernels_with_operator=with_operator,
    )
    return ReplayOrigins(
        columns=columns,
        origins=Origins(operator=operator, detail=detail, call=call),
        source=source,
        launch=launch,
        match=match,
    )


def _match(names: Sequence[str], graphs: Sequence[CapturedLaunches]) -> tuple[int, Column]:
    """Return the trace of the best matching capture, and for each kernel of a replay the row of its launch; -1 for none."""
    best = -1, np.full(len(names), -1, dtype=np.int64)
    for graph in graphs:
        found = np.full(len(names), -1, dtype=np.int64)
        if tuple(names) == graph.kernels or (not any(graph.kernels) and len(names) == len(graph.calls)):
            return graph.source, graph.calls
        if any(graph.kernels) and len(names) * len(graph.kernels) <= _MAX_COMPARISONS:
            for block in SequenceMatcher(None, names, graph.kernels, autojunk=False).get_matching_blocks():
                found[block.a : block.a + block.size] = graph.calls[block.b : block.b + block.size]
        if (found >= 0).sum() > (best[1] >= 0).sum():
            best = graph.source, found
    # Kernels of another graph can have the same names; a few common ones are no match.
    return best if 2 * (best[1] >= 0).sum() >= len(names) else (-1, np.full(len(names), -1, dtype=np.int64))


def _joined(strings: tuple[str, ...], others: tuple[str, ...], ids: Column) -> tuple[tuple[str, ...], Column]:
    """Return all strings with the used ones of another trace added, and the ids of these."""
    known = {text: number for number, text in enumerate(strings)}
    new = np.array([known.setdefault(others[number], len(known)) for number in ids.tolist()], dtype=np.int32)
    return tuple(known), new
