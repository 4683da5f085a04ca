"""Idle time of a device, and who was late."""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from rocsolid.model.trace import Cause, Gap, IdleTime
from rocsolid.trace.capture_windows import Capturing
from rocsolid.trace.columns import Column, Columns, DeviceEvents, HostEvents, Which, distinct, rows
from rocsolid.trace.intervals import Cover, overlap
from rocsolid.trace.link_launches import Links, loader_waits

LARGEST_GAPS: Final = 200
_ORDER: Final = tuple(Cause)


@dataclass(frozen=True, kw_only=True)
class JudgedGaps:
    """The gaps of a device, each with the number of its cause among `Cause`."""

    cover: Cover
    cause: Column
    call: Column  # that launched what came after, by number; -1 for none


def judge_gaps(columns: Columns, device: DeviceEvents, which: Which, links: Links, cover: Cover) -> JudgedGaps:
    """Give each gap a cause, by the call that launched the first work after it."""
    calls = columns.calls
    call = links.call[which][cover.after]
    known = call >= 0
    begun = np.where(known, calls.start[call] if len(calls) else 0, 0)
    ended = np.where(known, calls.end[call] if len(calls) else 0, 0)
    late = known & (begun >= cover.gap_start)
    launching = known & ~late & (ended > cover.gap_start)
    queued = known & ~late & ~launching
    same_graph = (
        links.in_graph[which][cover.after]
        & links.in_graph[which][cover.before]
        & (device.correlation[cover.after] == device.correlation[cover.before])
    )
    other_stream = device.stream[cover.before] != device.stream[cover.after]
    host = _host_causes(columns, links, cover, call)
    cause = np.select(
        [
            late & (host >= 0),
            late,
            queued & same_graph,
            launching & same_graph,
            launching,
            queued & other_stream,
            queued,
        ],
        [
            host,
            _number(Cause.HOST_LATE),
            _number(Cause.GRAPH),
            _number(Cause.GRAPH),
            _number(Cause.LAUNCHING),
            _number(Cause.STREAMS),
            _number(Cause.QUEUED),
        ],
        _number(Cause.UNKNOWN),
    )
    return JudgedGaps(cover=cover, cause=cause, call=call)


def _host_causes(columns: Columns, links: Links, cover: Cover, call: Column) -> Column:
    """What kept a host that came too late: a wait for the device, a blocking copy, the data loader; -1 for neither."""
    found = np.full(len(call), -1, dtype=np.int64)
    length = cover.gap_end - cover.gap_start
    waits = loader_waits(columns)
    found[2 * overlap(cover.gap_start, cover.gap_end, *waits) >= np.maximum(length, 1)] = _number(Cause.LOADER)
    for kind, cause in ((links.copy_calls, Cause.COPY), (links.sync_calls, Cause.SYNC)):
        found[_blocked(columns, kind, cover, call)] = _number(cause)
    return found


def _blocked(columns: Columns, kind: Column, cover: Cover, call: Column) -> Column:
    """Whether the launching thread stood in such a call when the device ran dry, and was let go before it launched."""
    calls = columns.calls
    blocked = np.zeros(len(call), dtype=np.bool_)
    for thread in distinct(calls.thread[kind]):
        waits = kind[calls.thread[kind] == thread]
        waits = waits[np.argsort(calls.start[waits], kind="stable")]
        begun, until = calls.start[waits], calls.end[waits]
        last = np.searchsorted(begun, cover.gap_start, side="right") - 1
        inside = (last >= 0) & (until[np.maximum(last, 0)] >= cover.gap_start)
        inside &= until[np.maximum(last, 0)] <= cover.gap_end
        same = np.where(call >= 0, calls.thread[np.maximum(call, 0)] == thread, False)
        blocked |= inside & same
    return blocked


def idle_times(gaps: JudgedGaps, capturing: Capturing) -> tuple[IdleTime, ...]:
    """Idle time by cause, the worst first."""
    length = gaps.cover.gap_end - gaps.cover.gap_start
    captured = overlap(gaps.cover.gap_start, gaps.cover.gap_end, capturing.start, capturing.end)
    times = [
        IdleTime(
            cause=cause,
            gap_count=int(mine.sum()),
            time_ns=int(length[mine].sum()),
            capture_ns=int(captured[mine].sum()),
        )
        for number, cause in enumerate(_ORDER)
        for mine in (gaps.cause == number,)
        if mine.any()
    ]
    return tuple(sorted(times, key=lambda t: -t.time_ns))


def largest_gaps(
    columns: Columns, device: DeviceEvents, gaps: JudgedGaps, links: Links, operator: Column
) -> tuple[Gap, ...]:
    """The longest gaps in full, the longest first."""
    length = gaps.cover.gap_end - gaps.cover.gap_start
    longest = np.argsort(-length, kind="stable")[:LARGEST_GAPS]
    # Only what lasts half as long as the shortest of these gaps can fill half of any of them.
    least = int(length[longest].min(initial=2**62))
    long = [rows(t, 2 * (t.end - t.start) >= least) for t in (columns.calls, columns.ops, columns.notes)]
    filling = HostEvents(**{f.name: np.concatenate([getattr(t, f.name) for t in long]) for f in fields(HostEvents)})
    found = []
    for number in longest.tolist():
        launcher = int(operator[gaps.cover.after[number]])
        host = _waited_in(columns, links, gaps, number) or _host(columns, filling, gaps, number)
        found.append(_gap(columns, device, gaps, number, launcher=launcher, host=host))
    return tuple(found)


def _gap(columns: Columns, device: DeviceEvents, gaps: JudgedGaps, number: int, *, launcher: int, host: str) -> Gap:
    cover, names, calls = gaps.cover, columns.names, columns.calls
    after, call = int(cover.after[number]), int(gaps.call[number])
    return Gap(
        start_ns=int(cover.gap_start[number]) - cover.first,
        length_ns=int(cover.gap_end[number] - cover.gap_start[number]),
        cause=_ORDER[int(gaps.cause[number])],
        before=names[device.name[cover.before[number]]],
        after=names[device.name[after]],
        call=names[calls.name[call]] if call >= 0 else "",
        operator=names[launcher] if launcher >= 0 else "",
        host=host,
    )


def _waited_in(columns: Columns, links: Links, gaps: JudgedGaps, number: int) -> str:
    """The call in which the host stood when the device ran dry, where that is the cause."""
    kind = {Cause.SYNC: links.sync_calls, Cause.COPY: links.copy_calls}.get(_ORDER[int(gaps.cause[number])])
    if kind is None:
        return ""
    calls, start = columns.calls, gaps.cover.gap_start[number]
    thread = calls.thread[int(gaps.call[number])]
    around = kind[(calls.start[kind] <= start) & (calls.end[kind] >= start) & (calls.thread[kind] == thread)]
    return columns.names[calls.name[around[-1]]] if len(around) else ""


def _host(columns: Columns, filling: HostEvents, gaps: JudgedGaps, number: int) -> str:
    """What the launching thread did for most of the gap, among calls and operators; the narrowest that fits."""
    call = int(gaps.call[number])
    if call < 0:
        return ""
    start, end = int(gaps.cover.gap_start[number]), int(gaps.cover.gap_end[number])
    thread = columns.calls.thread[call]
    best, best_time, best_length = "", 0, 0
    near = (filling.thread == thread) & (filling.start < end) & (filling.end > start)
    for event in np.flatnonzero(near):
        time = min(end, int(filling.end[event])) - max(start, int(filling.start[event]))
        own = int(filling.end[event] - filling.start[event])
        if 2 * time >= end - start and (not best or own < best_length or (own == best_length and time > best_time)):
            best, best_time, best_length = columns.names[filling.name[event]], time, own
    return best


def _number(cause: Cause) -> int:
    return _ORDER.index(cause)
