"""Finds the operators of kernels in graph replays from a trace of the capture, by the order and names of the launches."""

import json
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
    link_launches,
    row_mask,
)
from rocsolid.trace.columns import Column, EventKind, TraceColumns

_KERNEL: Final = 3  # the position of the kernel's name in the details of a launch call
_MAX_COMPARISONS: Final = 20_000_000
_CALL_IDS: Final = 1 << 40  # above the rows of all operators in the trace of the replays


@dataclass(frozen=True, kw_only=True)
class CapturedLaunches:
    """The launches of one captured graph, in order."""

    calls: Column  # their rows in the trace of the capture
    kernels: tuple[str, ...]  # their names; empty where the trace does not record them, as on CUDA


@dataclass(frozen=True, kw_only=True)
class ReplayOrigins:
    """The trace of the replays with the operators of the capture."""

    columns: TraceColumns  # with the names and shapes of these operators
    origins: Origins
    launch: Column  # for each device event, the row of its launch call in the trace of the capture; -1 for none
    match: CaptureMatch


def captured_launches(capture: TraceColumns) -> list[CapturedLaunches]:
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
    return [
        CapturedLaunches(calls=calls, kernels=tuple(_kernel_name(capture, row) for row in calls.tolist()))
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


def add_capture(
    columns: TraceColumns, links: LaunchLinks, origins: Origins, capture: TraceColumns, file: str
) -> ReplayOrigins:
    """Give each kernel in a graph replay the operator, the shapes and the launch call of its capture."""
    graphs = captured_launches(capture)
    device = columns.device
    kernels = np.flatnonzero(links.in_graph & (device.kind == EventKind.KERNEL))
    kernels = kernels[np.lexsort((device.start[kernels], device.correlation[kernels]))]
    launch = np.full(len(device), -1, dtype=np.int64)
    call = origins.call.copy()
    known: dict[tuple[int, ...], Column] = {}
    edges = np.flatnonzero(np.diff(device.correlation[kernels])) + 1
    for number, replay in enumerate(np.split(kernels, edges) if len(kernels) else []):
        names = tuple(device.name[replay].tolist())
        if names not in known:
            known[names] = _match([columns.names[name] for name in names], graphs)
        launch[replay] = known[names]
        call[replay] = np.where(known[names] >= 0, _CALL_IDS * (number + 1) + known[names], call[replay])
    matched = launch >= 0
    operator_row = np.full(len(device), -1, dtype=np.int64)
    operator_row[matched] = call_operators(capture, launch[matched])
    found = operator_row >= 0
    names, name_ids = _joined(columns.names, capture.names, capture.ops.name[operator_row[found]])
    details, detail_ids = _joined(columns.details, capture.details, capture.ops.detail[operator_row[found]])
    operator, detail = origins.operator.copy(), origins.detail.copy()
    operator[found], detail[found] = name_ids, detail_ids
    # Several kernels of one call of an operator count as one call.
    call[found] = (call[found] // _CALL_IDS) * _CALL_IDS + operator_row[found]
    match = CaptureMatch(
        file=file,
        graphs=len(graphs),
        launches=sum(len(graph.calls) for graph in graphs),
        kernels=len(kernels),
        matched_kernels=int(matched.sum()),
        kernels_with_operator=int(found.sum()),
    )
    return ReplayOrigins(
        columns=replace(columns, names=names, details=details),
        origins=Origins(operator=operator, detail=detail, call=call),
        launch=launch,
        match=match,
    )


def _match(names: Sequence[str], graphs: Sequence[CapturedLaunches]) -> Column:
    """Return for each kernel of a replay the row of its launch in the best matching capture; -1 for none."""
    best = np.full(len(names), -1, dtype=np.int64)
    for graph in graphs:
        found = np.full(len(names), -1, dtype=np.int64)
        if tuple(names) == graph.kernels or (not any(graph.kernels) and len(names) == len(graph.calls)):
            return graph.calls
        if any(graph.kernels) and len(names) * len(graph.kernels) <= _MAX_COMPARISONS:
            for block in SequenceMatcher(None, names, graph.kernels, autojunk=False).get_matching_blocks():
                found[block.a : block.a + block.size] = graph.calls[block.b : block.b + block.size]
        if (found >= 0).sum() > (best >= 0).sum():
            best = found
    # Kernels of another graph can have the same names; a few common ones are no match.
    return best if 2 * (best >= 0).sum() >= len(names) else np.full(len(names), -1, dtype=np.int64)


def _joined(strings: tuple[str, ...], others: tuple[str, ...], ids: Column) -> tuple[tuple[str, ...], Column]:
    """Return all strings with the used ones of another trace added, and the ids of these."""
    known = {text: number for number, text in enumerate(strings)}
    new = np.array([known.setdefault(others[number], len(known)) for number in ids.tolist()], dtype=np.int32)
    return tuple(known), new
