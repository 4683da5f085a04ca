"""Checks whether a trace can be true, before anything is concluded from it: lost kernels, overlaps, clocks, durations."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from rocsolid.model.trace import Doubt, DoubtKind
from rocsolid.trace.analysis.capture_windows import CaptureWindows, events_named_launch, inside
from rocsolid.trace.analysis.link_launches import LaunchLinks, device_syncs, row_mask
from rocsolid.trace.columns import Column, DeviceEvents, EventKind, TraceColumns, sorted_unique

# All limits are above what 40 public traces of nine GPU models show without damage.
_MIN_SYNC_TAIL_NS: Final = 1_000_000
_MIN_SYNC_TAIL_SHARE: Final = 0.02  # of the span
_MIN_OVERLAP_SHARE: Final = 0.02  # of the time of a stream
_MIN_EARLY_SHARE: Final = 0.01  # of the launched kernels and copies
_MIN_LOST_LAUNCHES: Final = 3
_MIN_LATE_NS: Final = 100_000  # after a synchronisation of the device
_MIN_GAPS: Final = 10
_MIN_JUMP: Final = 8  # times the 99th percentile of the steps between ids
_MIN_CONSTANT_SHARE: Final = 0.5  # of the gaps
_MIN_REPLAY_KERNELS: Final = 50  # the pieces of a model that is captured in pieces are shorter, and differ
_MAX_REPLAY_KINDS: Final = 64


def find_doubts(columns: TraceColumns, links: LaunchLinks, captures: CaptureWindows) -> tuple[Doubt, ...]:
    """Return what cannot be true, or cannot be complete, in a trace."""
    device = columns.device
    if not len(device):
        return tuple(_empty_replays(columns, links))
    return (
        *_no_host_events(columns),
        *_sync_outlasts_work(columns, links),
        *_lost_launches(columns, links, captures),
        *_lost_calls(columns, links),
        *_hole(columns),
        *_empty_replays(columns, links),
        *_unequal_replays(columns, links),
        *_shifted_clock(columns, links),
        *_longer_than_trace(columns),
        *(doubt for device_id in sorted_unique(device.device).tolist() for doubt in _streams(device, device_id)),
    )


def _no_host_events(columns: TraceColumns) -> Iterator[Doubt]:
    if columns.producer == "kineto" and not (len(columns.calls) or len(columns.ops) or len(columns.annotations)):
        text = "the file has no host events: launches, graph replays, operators and the cause of idle time are unknown"
        yield Doubt(kind=DoubtKind.NO_HOST_EVENTS, text=text)


def _sync_outlasts_work(columns: TraceColumns, links: LaunchLinks) -> Iterator[Doubt]:
    """Yield a doubt when a synchronisation waits long after the last recorded work has ended."""
    calls, device, syncs = columns.calls, columns.device, links.sync_calls
    linked = links.call_row[links.call_row >= 0]
    if not len(syncs) or not len(linked):
        return
    syncs = syncs[calls.start[syncs] > calls.start[linked].min()]  # before the first launch, it waits for older work
    ends = np.sort(device.end)
    last = ends[np.maximum(np.searchsorted(ends, calls.end[syncs], side="right") - 1, 0)]
    tails = calls.end[syncs] - np.maximum(last, calls.start[syncs])
    # Work that ends later than the synchronisation may be what it waited for.
    running = np.searchsorted(np.sort(device.start), calls.end[syncs]) > np.searchsorted(ends, calls.end[syncs])
    tails = np.where(running, 0, tails)
    longest = int(tails.max(initial=0))
    span = int(device.end.max() - device.start.min())
    if longest > max(_MIN_SYNC_TAIL_NS, _MIN_SYNC_TAIL_SHARE * span):
        name = columns.names[calls.name[syncs[int(tails.argmax())]]]
        text = (
            f"{name} waits {longest / 1e6:.2f} ms longer than any recorded work runs: the kernels of that time are lost"
        )
        yield Doubt(kind=DoubtKind.LOST_KERNELS, text=text, time_ns=longest)


def _lost_launches(columns: TraceColumns, links: LaunchLinks, captures: CaptureWindows) -> Iterator[Doubt]:
    """Yield a doubt when launches outside captures have no kernel. After the last linked launch, the trace may just end."""
    calls, linked = columns.calls, links.call_row[links.call_row >= 0]
    if not len(linked):
        return
    launches = events_named_launch(columns)
    lost = launches[~row_mask(linked, len(calls))[launches]]
    lost = lost[calls.start[lost] < calls.start[linked].max()]
    lost = lost[~inside(calls.start[lost], captures.start, captures.end)]
    # If half of all launches start nothing, a graph is probably being captured; the rule launch-bound says so.
    if _MIN_LOST_LAUNCHES <= len(lost) < len(launches) / 2:
        text = f"{len(lost):,} of {len(launches):,} kernel launches have no kernel in the trace"
        yield Doubt(kind=DoubtKind.LOST_KERNELS, text=text, count=len(lost))


def _lost_calls(columns: TraceColumns, links: LaunchLinks) -> Iterator[Doubt]:
    """Yield a doubt when work has no launch although earlier work of its stream has one. Streams keep the order."""
    linked = links.call_row >= 0
    if not linked.any() or linked.all():
        return
    device = columns.device
    _, stream = np.unique(device.stream * 4096 + device.device, return_inverse=True)
    first = np.full(int(stream.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, stream[linked], device.start[linked])
    lost = int((~linked & (device.start > first[stream])).sum())
    if lost >= max(_MIN_LOST_LAUNCHES, 0.005 * len(linked)):
        text = f"{lost:,} kernels and copies in the middle of the trace have no launch in it"
        yield Doubt(kind=DoubtKind.LOST_CALLS, text=text, count=lost)


def _hole(columns: TraceColumns) -> Iterator[Doubt]:
    """Yield a doubt when the ids of calls and work jump in a file with broken text: the events between them are lost."""
    if not columns.skipped:
        return
    ids = sorted_unique(np.concatenate((columns.calls.correlation, columns.device.correlation)))
    steps = np.diff(ids[ids >= 0])
    if len(steps) < _MIN_GAPS:
        return
    jump = int(steps.max())
    if jump > _MIN_JUMP * max(np.percentile(steps, 99), 1):
        rate = len(sorted_unique(columns.device.correlation)) / max(int(steps.sum()) - jump, 1)
        lost = max(1, round(jump * rate))
        text = f"the ids of launches jump by {jump:,} in a file with broken text: about {lost:,} kernels and copies are lost"
        yield Doubt(kind=DoubtKind.LOST_KERNELS, text=text, count=lost)


def _empty_replays(columns: TraceColumns, links: LaunchLinks) -> Iterator[Doubt]:
    """Yield a doubt when graph launches have no kernels."""
    calls, graph_calls = columns.calls, links.graph_calls
    if not len(graph_calls):
        return
    correlation = columns.device.correlation
    empty = graph_calls[~np.isin(calls.correlation[graph_calls], correlation)]
    if len(correlation) and (links.call_row >= 0).any():
        empty = empty[calls.start[empty] < calls.start[links.call_row[links.call_row >= 0]].max()]
    if len(empty):
        text = f"{len(empty):,} of {len(graph_calls):,} graph launches have no kernel in the trace{_hip_hint(columns)}"
        yield Doubt(kind=DoubtKind.LOST_KERNELS, text=text, count=len(empty))


def _hip_hint(columns: TraceColumns) -> str:
    if not any(name.startswith("hip") for name in columns.names):
        return ""
    return (
        "; ROCTracer before ROCm 7.2.2 drops kernels of HIP graphs, and torch wheels bring their own copy of it "
        "in torch/lib"
    )


def _unequal_replays(columns: TraceColumns, links: LaunchLinks) -> Iterator[Doubt]:
    """Yield a doubt when replays of what must be one graph have different numbers of kernels."""
    device = columns.device
    kernels = np.flatnonzero(links.in_graph & (device.kind == EventKind.KERNEL))
    kernels = kernels[np.lexsort((device.start[kernels], device.correlation[kernels]))]
    if not len(kernels):
        return
    edges = np.flatnonzero(np.diff(device.correlation[kernels])) + 1
    sequences = {tuple(part.tolist()) for part in np.split(device.name[kernels], edges)}
    if len(sequences) > _MAX_REPLAY_KINDS:
        return
    by_length = sorted(sequences, key=len)
    for position, longer in enumerate(by_length):
        if len(longer) < _MIN_REPLAY_KERNELS:
            continue
        for shorter in by_length[:position]:
            if len(shorter) < len(longer) and _is_part(shorter, longer):
                text = (
                    f"replays of one graph have {len(shorter):,} and {len(longer):,} kernels, in the same order: "
                    f"some are lost{_hip_hint(columns)}"
                )
                yield Doubt(kind=DoubtKind.LOST_KERNELS, text=text, count=len(longer) - len(shorter))
                return


def _is_part(shorter: tuple[int, ...], longer: tuple[int, ...]) -> bool:
    """Return whether the names of `shorter` appear in `longer` in the same order. It must have most of the names."""
    if 2 * len(set(shorter)) < len(set(longer)):
        return False
    rest = iter(longer)
    return all(name in rest for name in shorter)


def _shifted_clock(columns: TraceColumns, links: LaunchLinks) -> Iterator[Doubt]:
    """Yield a doubt when work starts before its launch, or still runs after a synchronisation of the device."""
    device, calls = columns.device, columns.calls
    linked = np.flatnonzero(links.call_row >= 0)
    if not len(linked):
        return
    launch = calls.start[links.call_row[linked]]
    early = device.start[linked] < launch
    if early.mean() > _MIN_EARLY_SHARE:
        shift = int((launch - device.start[linked]).max())
        text = (
            f"{int(early.sum()):,} of {len(linked):,} kernels and copies start before their launch, by up to "
            f"{shift / 1e6:.3f} ms: the clocks of host and device differ"
        )
        yield Doubt(kind=DoubtKind.CLOCK_SHIFT, text=text, count=int(early.sum()), time_ns=shift)
        return
    syncs = device_syncs(columns, links)
    order = np.argsort(launch, kind="stable")
    latest_end = np.maximum.accumulate(device.end[linked][order])
    before = np.searchsorted(launch[order], calls.start[syncs], side="left")
    late = np.where(before > 0, latest_end[np.maximum(before - 1, 0)] - calls.end[syncs], 0)
    if len(sorted_unique(device.device)) == 1 and (late > _MIN_LATE_NS).sum() > (before > 0).sum() / 2:
        text = (
            f"work that was launched before a synchronisation of the device ends up to {int(late.max()) / 1e6:.3f} ms "
            "after it: the clocks of host and device differ"
        )
        yield Doubt(kind=DoubtKind.CLOCK_SHIFT, text=text, time_ns=int(late.max()))


def _longer_than_trace(columns: TraceColumns) -> Iterator[Doubt]:
    """Yield a doubt when a kernel or copy takes longer than everything else in the trace together."""
    device = columns.device
    tables = [table for table in (columns.calls, columns.ops, columns.annotations) if len(table)]
    if not tables or len(device) < 2:  # noqa: PLR2004 - "everything else" needs two events
        return
    duration = device.end - device.start
    longest = int(duration.argmax())
    others = np.arange(len(device)) != longest
    extent = int(device.end[others].max() - device.start[others].min())
    host = max(int(t.end.max()) for t in tables) - min(int(t.start.min()) for t in tables)
    if duration[longest] > max(extent, host):
        name = columns.names[device.name[longest]][:60]
        text = f"{name} takes {duration[longest] / 1e6:.2f} ms, longer than the rest of the trace ({max(extent, host) / 1e6:.2f} ms)"
        yield Doubt(kind=DoubtKind.DURATIONS, text=text, time_ns=int(duration[longest]))


def _streams(all_events: DeviceEvents, device_id: int) -> Iterator[Doubt]:
    """Yield doubts about events of one stream that overlap, and about gaps that are all equal."""
    rows = np.flatnonzero(all_events.device == device_id)
    start, end, stream, name = (getattr(all_events, field)[rows] for field in ("start", "end", "stream", "name"))
    order = np.lexsort((end, start, stream))
    start, end, stream, name = start[order], end[order], stream[order], name[order]
    same = stream[1:] == stream[:-1]
    latest = _latest_end(end, same)
    overlap = np.where(same, np.maximum(0, np.minimum(latest[:-1], end[1:]) - start[1:]), 0)
    total, time = int(overlap.sum()), int((end - start).sum())
    if total > _MIN_OVERLAP_SHARE * time:
        repeated = same & (start[1:] == start[:-1]) & (end[1:] == end[:-1])
        repeated &= name[1:] == name[:-1]
        reason = (
            f"{int(repeated.sum()):,} events are in the file twice"
            if 2 * int(overlap[repeated].sum()) > total
            else "their durations are too long, or their streams are wrong"
        )
        text = f"events of one stream overlap for {total / 1e6:.2f} of {time / 1e6:.2f} ms, which a GPU cannot do: {reason}"
        yield Doubt(kind=DoubtKind.OVERLAP, device=str(device_id), text=text, time_ns=total)
    gaps = (start[1:] - latest[:-1])[same]
    gaps = gaps[gaps >= -1]  # starts and durations are rounded
    none = int((gaps <= 1).sum())
    in_whole_us = ((end - start) % 1000 == 0).mean()  # such a clock rounds short gaps to 0
    if len(gaps) >= _MIN_GAPS and none >= _MIN_CONSTANT_SHARE * len(gaps) and in_whole_us < _MIN_CONSTANT_SHARE:
        text = (
            f"{none:,} of {len(gaps):,} gaps are at most 1 ns: the durations contain the gaps, "
            "so the GPU looks busier than it is"
        )
        yield Doubt(kind=DoubtKind.GAPS_IN_DURATIONS, device=str(device_id), text=text, count=none)


def _latest_end(end: Column, same: Column) -> Column:
    """Return for each event the latest end of it and of all earlier events of its stream; they are sorted by stream."""
    first = np.concatenate(([0], np.flatnonzero(~same) + 1))
    # The numbers of each stream are raised above all numbers of the stream before it, and lowered again.
    rank = np.cumsum(np.concatenate(([0], (~same).astype(np.int64))))
    low = int(end.min())
    step = int(end.max()) - low + 1
    if len(first) * step >= 2**62:
        return np.concatenate([np.maximum.accumulate(part) for part in np.split(end, first[1:])])
    latest: Column = np.maximum.accumulate(end - low + rank * step) - rank * step + low
    return latest
