"""Idle time of a device, and the cause of each gap."""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from rocsolid.model.trace import Gap, IdleCause, IdleTime
from rocsolid.trace.analysis.capture_windows import CaptureWindows
from rocsolid.trace.analysis.intervals import Coverage, overlap
from rocsolid.trace.analysis.link_launches import LaunchLinks, data_loader_times
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
_CAUSES: Final = tuple(IdleCause)


@dataclass(frozen=True, kw_only=True)
class ClassifiedGaps:
    """The gaps of a device with their causes."""

    covered: Coverage
    cause: Column  # index into `_CAUSES`
    call: Column  # the row of the call that launched the work after the gap; -1 for none


def classify_gaps(
    columns: TraceColumns, device: DeviceEvents, selection: RowSelection, links: LaunchLinks, covered: Coverage
) -> ClassifiedGaps:
    """Find the cause of each gap from the call that launched the first work after it."""
    calls = columns.calls
    call = links.call[selection][covered.after]
    known = call >= 0
    call_start = np.where(known, calls.start[call] if len(calls) else 0, 0)
    call_end = np.where(known, calls.end[call] if len(calls) else 0, 0)
    late = known & (call_start >= covered.gap_start)
    launching = known & ~late & (call_end > covered.gap_start)
    queued = known & ~late & ~launching
    same_replay = (
        links.in_graph[selection][covered.after]
        & links.in_graph[selection][covered.before]
        & (device.correlation[covered.after] == device.correlation[covered.before])
    )
    other_stream = device.stream[covered.before] != device.stream[covered.after]
    host = _host_causes(columns, links, covered, call)
    cause = np.select(
        [
            late & (host >= 0),
            late,
            queued & same_replay,
            launching & same_replay,
            launching,
            queued & other_stream,
            queued,
        ],
        [
            host,
            _index(IdleCause.LATE_LAUNCH),
            _index(IdleCause.BETWEEN_GRAPH_NODES),
            _index(IdleCause.BETWEEN_GRAPH_NODES),
            _index(IdleCause.LAUNCH_IN_PROGRESS),
            _index(IdleCause.STREAM_DEPENDENCY),
            _index(IdleCause.QUEUED),
        ],
        _index(IdleCause.UNKNOWN),
    )
    return ClassifiedGaps(covered=covered, cause=cause, call=call)


def _host_causes(columns: TraceColumns, links: LaunchLinks, covered: Coverage, call: Column) -> Column:
    """Why the host launched late: a synchronisation, a blocking copy or the data loader; -1 for none of these."""
    found = np.full(len(call), -1, dtype=np.int64)
    length = covered.gap_end - covered.gap_start
    loading = data_loader_times(columns)
    in_loader = 2 * overlap(covered.gap_start, covered.gap_end, *loading) >= np.maximum(length, 1)
    found[in_loader] = _index(IdleCause.DATA_LOADER)
    for blocking, cause in ((links.copy_calls, IdleCause.BLOCKING_COPY), (links.sync_calls, IdleCause.SYNC)):
        found[_blocked(columns, blocking, covered, call)] = _index(cause)
    return found


def _blocked(columns: TraceColumns, blocking: Column, covered: Coverage, call: Column) -> Column:
    """Whether the launching thread was in a blocking call when the gap began, which returned before the gap ended."""
    calls = columns.calls
    blocked = np.zeros(len(call), dtype=np.bool_)
    for thread in sorted_unique(calls.thread[blocking]):
        waits = blocking[calls.thread[blocking] == thread]
        waits = waits[np.argsort(calls.start[waits], kind="stable")]
        wait_start, wait_end = calls.start[waits], calls.end[waits]
        last = np.searchsorted(wait_start, covered.gap_start, side="right") - 1
        inside = (last >= 0) & (wait_end[np.maximum(last, 0)] >= covered.gap_start)
        inside &= wait_end[np.maximum(last, 0)] <= covered.gap_end
        same_thread = np.where(call >= 0, calls.thread[np.maximum(call, 0)] == thread, False)
        blocked |= inside & same_thread
    return blocked


def idle_times(gaps: ClassifiedGaps, captures: CaptureWindows) -> tuple[IdleTime, ...]:
    """Idle time by cause, the most first."""
    length = gaps.covered.gap_end - gaps.covered.gap_start
    captured = overlap(gaps.covered.gap_start, gaps.covered.gap_end, captures.start, captures.end)
    times = [
        IdleTime(
            cause=cause,
            gap_count=int(mine.sum()),
            time_ns=int(length[mine].sum()),
            capture_ns=int(captured[mine].sum()),
        )
        for number, cause in enumerate(_CAUSES)
        for mine in (gaps.cause == number,)
        if mine.any()
    ]
    return tuple(sorted(times, key=lambda t: -t.time_ns))


def longest_gaps(
    columns: TraceColumns, device: DeviceEvents, gaps: ClassifiedGaps, links: LaunchLinks, operator: Column
) -> tuple[Gap, ...]:
    """The longest gaps with all details, the longest first."""
    length = gaps.covered.gap_end - gaps.covered.gap_start
    longest = np.argsort(-length, kind="stable")[:MAX_GAPS]
    # Host events shorter than half of the shortest of these gaps cannot fill half of any of them.
    least = int(length[longest].min(initial=2**62))
    long = [select_rows(t, 2 * (t.end - t.start) >= least) for t in (columns.calls, columns.ops, columns.annotations)]
    long_events = HostEvents(**{f.name: np.concatenate([getattr(t, f.name) for t in long]) for f in fields(HostEvents)})
    found = []
    for number in longest.tolist():
        launcher = int(operator[gaps.covered.after[number]])
        host = _blocking_call(columns, links, gaps, number) or _host_event(columns, long_events, gaps, number)
        found.append(_gap(columns, device, gaps, number, launcher=launcher, host=host))
    return tuple(found)


def _gap(
    columns: TraceColumns, device: DeviceEvents, gaps: ClassifiedGaps, number: int, *, launcher: int, host: str
) -> Gap:
    covered, names, calls = gaps.covered, columns.names, columns.calls
    after, call = int(covered.after[number]), int(gaps.call[number])
    return Gap(
        start_ns=int(covered.gap_start[number]) - covered.first,
        length_ns=int(covered.gap_end[number] - covered.gap_start[number]),
        cause=_CAUSES[int(gaps.cause[number])],
        before=names[device.name[covered.before[number]]],
        after=names[device.name[after]],
        launch_call=names[calls.name[call]] if call >= 0 else "",
        operator=names[launcher] if launcher >= 0 else "",
        host_activity=host,
    )


def _blocking_call(columns: TraceColumns, links: LaunchLinks, gaps: ClassifiedGaps, number: int) -> str:
    """The call that the host was blocked in when the gap began, if that is the cause."""
    cause = _CAUSES[int(gaps.cause[number])]
    blocking = {IdleCause.SYNC: links.sync_calls, IdleCause.BLOCKING_COPY: links.copy_calls}.get(cause)
    if blocking is None:
        return ""
    calls, start = columns.calls, gaps.covered.gap_start[number]
    thread = calls.thread[int(gaps.call[number])]
    around = blocking[
        (calls.start[blocking] <= start) & (calls.end[blocking] >= start) & (calls.thread[blocking] == thread)
    ]
    return columns.names[calls.name[around[-1]]] if len(around) else ""


def _host_event(columns: TraceColumns, long_events: HostEvents, gaps: ClassifiedGaps, number: int) -> str:
    """The shortest host event of the launching thread that fills at least half of the gap."""
    call = int(gaps.call[number])
    if call < 0:
        return ""
    start, end = int(gaps.covered.gap_start[number]), int(gaps.covered.gap_end[number])
    thread = columns.calls.thread[call]
    best, best_time, best_length = "", 0, 0
    near = (long_events.thread == thread) & (long_events.start < end) & (long_events.end > start)
    for event in np.flatnonzero(near):
        time = min(end, int(long_events.end[event])) - max(start, int(long_events.start[event]))
        length = int(long_events.end[event] - long_events.start[event])
        better = not best or length < best_length or (length == best_length and time > best_time)
        if 2 * time >= end - start and better:
            best, best_time, best_length = columns.names[long_events.name[event]], time, length
    return best


def _index(cause: IdleCause) -> int:
    return _CAUSES.index(cause)
