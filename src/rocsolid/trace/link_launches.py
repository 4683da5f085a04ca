"""Which call on the host brought about which work on the device."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.trace.columns import Column, Columns, DeviceEvents, HostEvents, distinct

_GRAPH_LAUNCH: Final = re.compile(r"(cuda|hip|cu)GraphLaunch")
_SYNC: Final = re.compile(r"(cuda|hip|cu)(Device|Stream|Event|Ctx|Context)Synchronize")
_BLOCKING_COPY: Final = re.compile(r"(cuda|hip|cu)Memcpy(?!.*Async)(?!.*Peer)")
_LOADER: Final = re.compile(r"enumerate\(DataLoader\)|_BaseDataLoaderIter|DataLoaderIter\.__next__")


@dataclass(frozen=True, kw_only=True)
class Links:
    """For each device event the number of its call, -1 for none; and which calls are of which kind."""

    call: Column
    graph_calls: Column
    sync_calls: Column
    copy_calls: Column
    in_graph: Column  # by device event


def link(columns: Columns) -> Links:
    """Join device events and calls by their correlation."""
    calls = columns.calls
    graph_calls = named(columns, calls, _GRAPH_LAUNCH)
    in_graph = np.isin(columns.device.correlation, calls.correlation[graph_calls]) & (columns.device.correlation >= 0)
    return Links(
        call=_call_of(columns.device, calls),
        graph_calls=graph_calls,
        sync_calls=named(columns, calls, _SYNC),
        copy_calls=named(columns, calls, _BLOCKING_COPY),
        in_graph=in_graph,
    )


def named(columns: Columns, events: HostEvents, pattern: re.Pattern[str]) -> Column:
    """Which events have a name of that kind, by number."""
    fitting = np.array([bool(pattern.match(name)) for name in columns.names], dtype=np.bool_)
    return np.flatnonzero(fitting[events.name]) if len(events) else np.zeros(0, dtype=np.int64)


def among(numbers: Column, count: int) -> Column:
    """Which of so many rows are named by number; numpy's own set operations hash, which takes far longer for millions."""
    found = np.zeros(count, dtype=np.bool_)
    found[numbers] = True
    return found


def loader_waits(columns: Columns) -> tuple[Column, Column]:
    """When the host waited for a data loader."""
    spans = [(e, named(columns, e, _LOADER)) for e in (columns.ops, columns.notes)]
    return (
        np.concatenate([events.start[which] for events, which in spans]),
        np.concatenate([events.end[which] for events, which in spans]),
    )


def _call_of(device: DeviceEvents, calls: HostEvents) -> Column:
    """The latest call of the same correlation that began before the work did; ids can be used twice."""
    none = np.full(len(device), -1, dtype=np.int64)
    candidates = np.flatnonzero(calls.correlation >= 0)
    if len(candidates) == 0 or len(device) == 0:
        return none
    order = candidates[np.lexsort((calls.start[candidates], calls.correlation[candidates]))]
    ids, begun = calls.correlation[order], calls.start[order]
    left = np.searchsorted(ids, device.correlation, side="left")
    right = np.searchsorted(ids, device.correlation, side="right")
    found = np.where((right > left) & (device.correlation >= 0), order[np.minimum(left, len(order) - 1)], none)
    for event in np.flatnonzero(right - left > 1):
        among = begun[left[event] : right[event]]
        latest = int(np.searchsorted(among, device.start[event], side="right")) - 1
        found[event] = order[left[event] + max(latest, 0)]
    return found


def launching_operators(columns: Columns, links: Links) -> Column:
    """By device event the name of the operator that launched it, by number; -1 for none.

    The profiler gives both the same id. Where it does not, the operator in which the launching call was made is it.
    """
    found = _by_id(columns, columns.device.external)
    missing = np.flatnonzero((found < 0) & (links.call >= 0))
    if len(missing) and len(columns.ops):
        found[missing] = _enclosing(columns, links.call[missing])
    return found


def _enclosing(columns: Columns, calls: Column) -> Column:
    """The innermost operator around each call, found by going through both in order of time, thread by thread."""
    ops, found = columns.ops, np.full(len(calls), -1, dtype=np.int32)
    wanted, inverse = np.unique(calls, return_inverse=True)
    answers = np.full(len(wanted), -1, dtype=np.int32)
    for thread in distinct(columns.calls.thread[wanted]):
        mine = np.flatnonzero(columns.calls.thread[wanted] == thread)
        mine = mine[np.argsort(columns.calls.start[wanted[mine]], kind="stable")]
        inside = np.flatnonzero(ops.thread == thread)
        inside = inside[np.lexsort((-ops.end[inside], ops.start[inside]))]
        starts, ends, names = ops.start[inside].tolist(), ops.end[inside].tolist(), ops.name[inside].tolist()
        open_ops: list[int] = []
        following = 0
        for number, moment in zip(mine.tolist(), columns.calls.start[wanted[mine]].tolist(), strict=True):
            while following < len(starts) and starts[following] <= moment:
                while open_ops and ends[open_ops[-1]] < starts[following]:
                    open_ops.pop()
                open_ops.append(following)
                following += 1
            while open_ops and ends[open_ops[-1]] < moment:
                open_ops.pop()
            if open_ops:
                answers[number] = names[open_ops[-1]]
    found[:] = answers[inverse]
    return found


def _by_id(columns: Columns, external: Column) -> Column:
    """The name of the operator with each id: of several the innermost, which launched."""
    ops = columns.ops
    known = np.flatnonzero(ops.external >= 0)
    if len(known) == 0:
        return np.full(len(external), -1, dtype=np.int32)
    order = known[np.lexsort((ops.start[known], ops.external[known]))]
    ids = ops.external[order]
    at = np.searchsorted(ids, external, side="right") - 1
    hit = (at >= 0) & (external >= 0)
    hit &= ids[np.maximum(at, 0)] == external
    return np.where(hit, ops.name[order[np.maximum(at, 0)]], -1).astype(np.int32)
