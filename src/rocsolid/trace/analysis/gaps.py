"""Idle time of a device, and the cause of each gap."""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from rocsolid.model.trace import Gap, IdleCause, IdleTime
from rocsolid.trace.analysis.capture_windows import CaptureWindows
from rocsolid.trace.analysis.intervals import Coverage, overlap
from rocsolid.trace.analysis.link_launches import LaunchLinks, data_loader_times, row_mask
from rocsolid.trace.columns import (
    Column,
    DeviceEvents,
    HostEvents,
    RowSelection,
    TraceColumns,
    select_rows,
    sorted_unique,
)

MAX_GAPS: Final = 200
_MAX_NAMED_WAITS: Final = 20
_CAUSES: Final = tuple(IdleCause)


@dataclass(frozen=True, kw_only=True)
class ClassifiedGaps:
    """The gaps of a device, with the cause of each."""

    covered: Coverage
    cause: Column  # index into `_CAUSES`
    call_row: Column  # the row of the call that launched the work after the gap; -1 for none
    in_call: Column  # how long that call ran during the gap
    in_graph_launch: Column  # the same, only of calls that launch a graph


def classify_gaps(
    columns: TraceColumns, device: DeviceEvents, selection: RowSelection, links: LaunchLinks, covered: Coverage
) -> ClassifiedGaps:
    """Find the cause of each gap from the call that launched the first work after it."""
    calls = columns.calls
    call_row = links.call_row[selection][covered.row_after]
    known = call_row >= 0
    call_start = np.where(known, calls.start[call_row] if len(calls) else 0, 0)
    call_end = np.where(known, calls.end[call_row] if len(calls) else 0, 0)
    late = known & (call_start >= covered.gap_start)
    in_progress = known & ~late & (call_end > covered.gap_start)
    queued = known & ~late & ~in_progress
    same_replay = (
        links.in_graph[selection][covered.row_after]
        & links.in_graph[selection][covered.row_before]
        & (device.correlation[covered.row_after] == device.correlation[covered.row_before])
    )
    other_stream = device.stream[covered.row_before] != device.stream[covered.row_after]
    host_cause = _host_causes(columns, links, covered, call_row)
    cause = np.select(
        [
            late & (host_cause >= 0),
            late,
            queued & same_replay,
            in_progress & same_replay,
            in_progress,
            queued & other_stream,
            queued,
        ],
        [
            host_cause,
            _index(IdleCause.LATE_LAUNCH),
            _index(IdleCause.BETWEEN_GRAPH_NODES),
            _index(IdleCause.BETWEEN_GRAPH_NODES),
            _index(IdleCause.LAUNCH_IN_PROGRESS),
            _index(IdleCause.STREAM_DEPENDENCY),
            _index(IdleCause.QUEUED),
        ],
        _index(IdleCause.UNKNOWN),
    )
    in_call = np.minimum(call_end, covered.gap_end) - np.maximum(call_start, covered.gap_start)
    in_call = np.where(late | in_progress, np.maximum(in_call, 0), 0)
    is_graph = row_mask(links.graph_calls, len(calls))
    graph = known & (is_graph[call_row] if len(calls) else False)
    return ClassifiedGaps(
        covered=covered,
        cause=cause,
        call_row=call_row,
        in_call=in_call,
        in_graph_launch=np.where(graph, in_call, 0),
    )


def _host_causes(columns: TraceColumns, links: LaunchLinks, covered: Coverage, call_row: Column) -> Column:
    """Return for each gap why the host launched late: sync, blocking copy or data loader; -1 for none of these."""
    causes = np.full(len(call_row), -1, dtype=np.int64)
    duration = covered.gap_end - covered.gap_start
    loader_times = data_loader_times(columns)
    in_loader = 2 * overlap(covered.gap_start, covered.gap_end, *loader_times) >= np.maximum(duration, 1)
    causes[in_loader] = _index(IdleCause.DATA_LOADER)
    for blocking, cause in ((links.copy_calls, IdleCause.BLOCKING_COPY), (links.sync_calls, IdleCause.SYNC)):
        causes[_blocked(columns, blocking, covered, call_row)] = _index(cause)
    return causes


def _blocked(columns: TraceColumns, blocking: Column, covered: Coverage, call_row: Column) -> Column:
    """Return for each gap whether its launching thread was in a blocking call when the gap began.

    The call must have returned before the end of the gap.
    """
    calls = columns.calls
    blocked = np.zeros(len(call_row), dtype=np.bool_)
    for thread in sorted_unique(calls.thread[blocking]):
        waits = blocking[calls.thread[blocking] == thread]
        waits = waits[np.argsort(calls.start[waits], kind="stable")]
        wait_start, wait_end = calls.start[waits], calls.end[waits]
        last = np.searchsorted(wait_start, covered.gap_start, side="right") - 1
        inside = (last >= 0) & (wait_end[np.maximum(last, 0)] >= covered.gap_start)
        inside &= wait_end[np.maximum(last, 0)] <= covered.gap_end
        same_thread = np.where(call_row >= 0, calls.thread[np.maximum(call_row, 0)] == thread, False)
        blocked |= inside & same_thread
    return blocked


def idle_times(gaps: ClassifiedGaps, captures: CaptureWindows) -> tuple[IdleTime, ...]:
    """Return the idle time of each cause, the largest first."""
    duration = gaps.covered.gap_end - gaps.covered.gap_start
    captured = overlap(gaps.covered.gap_start, gaps.covered.gap_end, captures.start, captures.end)
    times = [
        IdleTime(
            cause=cause,
            gap_count=int(has_cause.sum()),
            time_ns=int(duration[has_cause].sum()),
            capture_ns=int(captured[has_cause].sum()),
            in_call_ns=int(gaps.in_call[has_cause].sum()),
            in_graph_launch_ns=int(gaps.in_graph_launch[has_cause].sum()),
            longest_ns=int(duration[has_cause].max()),
        )
        for index, cause in enumerate(_CAUSES)
        for has_cause in (gaps.cause == index,)
        if has_cause.any()
    ]
    return tuple(sorted(times, key=lambda idle: -idle.time_ns))


def longest_gaps(
    columns: TraceColumns, device: DeviceEvents, gaps: ClassifiedGaps, links: LaunchLinks, operator: Column
) -> tuple[Gap, ...]:
    """Return the longest gaps with all details, the longest first."""
    duration = gaps.covered.gap_end - gaps.covered.gap_start
    longest = np.argsort(-duration, kind="stable")[:MAX_GAPS]
    # Host events shorter than half of the shortest of these gaps cannot fill half of any of them.
    shortest = int(duration[longest].min(initial=2**62))
    tables = [
        select_rows(table, 2 * (table.end - table.start) >= shortest)
        for table in (columns.calls, columns.ops, columns.annotations)
    ]
    long_events = HostEvents(
        **{field.name: np.concatenate([getattr(table, field.name) for table in tables]) for field in fields(HostEvents)}
    )
    rows = []
    named = 0
    for gap in longest.tolist():
        operator_id = int(operator[gaps.covered.row_after[gap]])
        activity = _blocking_call(columns, links, gaps, gap) or _host_event(columns, long_events, gaps, gap)
        row = _gap_row(columns, device, gaps, gap, operator_id=operator_id, host_activity=activity)
        if row.cause in (IdleCause.SYNC, IdleCause.BLOCKING_COPY) and named < _MAX_NAMED_WAITS:
            named += 1
            row = replace(row, host_operator=_waiting_operator(columns, gaps, gap))
        rows.append(row)
    return tuple(rows)


def _gap_row(
    columns: TraceColumns,
    device: DeviceEvents,
    gaps: ClassifiedGaps,
    gap: int,
    *,
    operator_id: int,
    host_activity: str,
) -> Gap:
    covered, names, calls = gaps.covered, columns.names, columns.calls
    row_after, call_row = int(covered.row_after[gap]), int(gaps.call_row[gap])
    return Gap(
        start_ns=int(covered.gap_start[gap]) - covered.first_start,
        duration_ns=int(covered.gap_end[gap] - covered.gap_start[gap]),
        cause=_CAUSES[int(gaps.cause[gap])],
        previous_work=names[device.name[covered.row_before[gap]]],
        next_work=names[device.name[row_after]],
        launch_call=names[calls.name[call_row]] if call_row >= 0 else "",
        operator=names[operator_id] if operator_id >= 0 else "",
        host_activity=host_activity,
    )


def _blocking_call(columns: TraceColumns, links: LaunchLinks, gaps: ClassifiedGaps, gap: int) -> str:
    """Return the call that blocked the host when the gap began; empty when the cause is another."""
    cause = _CAUSES[int(gaps.cause[gap])]
    blocking = {IdleCause.SYNC: links.sync_calls, IdleCause.BLOCKING_COPY: links.copy_calls}.get(cause)
    if blocking is None:
        return ""
    calls, start = columns.calls, gaps.covered.gap_start[gap]
    thread = calls.thread[int(gaps.call_row[gap])]
    running = blocking[
        (calls.start[blocking] <= start) & (calls.end[blocking] >= start) & (calls.thread[blocking] == thread)
    ]
    return columns.names[calls.name[running[-1]]] if len(running) else ""


def _waiting_operator(columns: TraceColumns, gaps: ClassifiedGaps, gap: int) -> str:
    """Return the outermost operator of torch that was running when the gap began, such as aten::is_nonzero."""
    ops, start = columns.ops, gaps.covered.gap_start[gap]
    thread = columns.calls.thread[int(gaps.call_row[gap])]
    running = np.flatnonzero((ops.start <= start) & (ops.end >= start) & (ops.thread == thread))
    names = [columns.names[ops.name[row]] for row in running[np.argsort(ops.start[running], kind="stable")]]
    return next((name for name in names if name.startswith("aten::")), "")


def _host_event(columns: TraceColumns, long_events: HostEvents, gaps: ClassifiedGaps, gap: int) -> str:
    """Return the name of the shortest host event of the launching thread that fills at least half of the gap."""
    call_row = int(gaps.call_row[gap])
    if call_row < 0:
        return ""
    start, end = int(gaps.covered.gap_start[gap]), int(gaps.covered.gap_end[gap])
    thread = columns.calls.thread[call_row]
    best, best_overlap, best_duration = "", 0, 0
    overlapping = (long_events.thread == thread) & (long_events.start < end) & (long_events.end > start)
    for event in np.flatnonzero(overlapping):
        time_in_gap = min(end, int(long_events.end[event])) - max(start, int(long_events.start[event]))
        duration = int(long_events.end[event] - long_events.start[event])
        better = not best or duration < best_duration or (duration == best_duration and time_in_gap > best_overlap)
        if 2 * time_in_gap >= end - start and better:
            best, best_overlap, best_duration = columns.names[long_events.name[event]], time_in_gap, duration
    return best


def _index(cause: IdleCause) -> int:
    return _CAUSES.index(cause)
