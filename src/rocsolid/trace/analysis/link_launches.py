"""Links device events to the runtime calls and operators that launched them."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.trace.columns import Column, DeviceEvents, HostEvents, TraceColumns, sorted_unique

_GRAPH_LAUNCH: Final = re.compile(r"(cuda|hip|cu)GraphLaunch")
_SYNC: Final = re.compile(r"(cuda|hip|cu)(Device|Stream|Event|Ctx|Context)Synchronize")
_BLOCKING_COPY: Final = re.compile(r"(cuda|hip|cu)Memcpy(?!.*Async)(?!.*Peer)")
_DATA_LOADER: Final = re.compile(r"enumerate\(DataLoader\)|_BaseDataLoaderIter|DataLoaderIter\.__next__")


@dataclass(frozen=True, kw_only=True)
class LaunchLinks:
    """The launch call of each device event, and the rows of graph launches, synchronisations and blocking copies."""

    call: Column  # for each device event, the row of its call; -1 for none
    graph_calls: Column
    sync_calls: Column
    copy_calls: Column
    in_graph: Column  # for each device event, whether a graph replay launched it


def link_launches(columns: TraceColumns) -> LaunchLinks:
    """Match device events and calls by their correlation id."""
    calls = columns.calls
    graph_calls = events_named(columns, calls, _GRAPH_LAUNCH)
    in_graph = np.isin(columns.device.correlation, calls.correlation[graph_calls]) & (columns.device.correlation >= 0)
    return LaunchLinks(
        call=_launch_calls(columns.device, calls),
        graph_calls=graph_calls,
        sync_calls=events_named(columns, calls, _SYNC),
        copy_calls=events_named(columns, calls, _BLOCKING_COPY),
        in_graph=in_graph,
    )


def events_named(columns: TraceColumns, events: HostEvents, pattern: re.Pattern[str]) -> Column:
    """The rows of events whose name matches a pattern."""
    matches = np.array([bool(pattern.match(name)) for name in columns.names], dtype=np.bool_)
    return np.flatnonzero(matches[events.name]) if len(events) else np.zeros(0, dtype=np.int64)


def row_mask(rows: Column, count: int) -> Column:
    """Row numbers as a mask of `count` rows. numpy's set operations are much slower for millions of rows."""
    found = np.zeros(count, dtype=np.bool_)
    found[rows] = True
    return found


def data_loader_times(columns: TraceColumns) -> tuple[Column, Column]:
    """Starts and ends of the time that the host spent in a data loader."""
    found = [(e, events_named(columns, e, _DATA_LOADER)) for e in (columns.ops, columns.annotations)]
    return (
        np.concatenate([events.start[rows] for events, rows in found]),
        np.concatenate([events.end[rows] for events, rows in found]),
    )


def _launch_calls(device: DeviceEvents, calls: HostEvents) -> Column:
    """The row of each device event's call: the latest call with its correlation id that began before it.

    A correlation id can occur more than once.
    """
    none = np.full(len(device), -1, dtype=np.int64)
    candidates = np.flatnonzero(calls.correlation >= 0)
    if len(candidates) == 0 or len(device) == 0:
        return none
    order = candidates[np.lexsort((calls.start[candidates], calls.correlation[candidates]))]
    ids, starts = calls.correlation[order], calls.start[order]
    left = np.searchsorted(ids, device.correlation, side="left")
    right = np.searchsorted(ids, device.correlation, side="right")
    found = np.where((right > left) & (device.correlation >= 0), order[np.minimum(left, len(order) - 1)], none)
    for event in np.flatnonzero(right - left > 1):
        same_id = starts[left[event] : right[event]]
        latest = int(np.searchsorted(same_id, device.start[event], side="right")) - 1
        found[event] = order[left[event] + max(latest, 0)]
    return found


def launching_operators(columns: TraceColumns, links: LaunchLinks) -> Column:
    """For each device event, the name id of the operator that launched it; -1 for none.

    The profiler gives both the same external id. Without one, the innermost operator around the launch call is used.
    """
    found = _operators_by_id(columns, columns.device.external)
    missing = np.flatnonzero((found < 0) & (links.call >= 0))
    if len(missing) and len(columns.ops):
        found[missing] = _enclosing_operators(columns, links.call[missing])
    return found


def _enclosing_operators(columns: TraceColumns, calls: Column) -> Column:
    """The name id of the innermost operator around each call; walks calls and operators in time order, per thread."""
    ops = columns.ops
    rows, inverse = np.unique(calls, return_inverse=True)
    found = np.full(len(rows), -1, dtype=np.int32)
    for thread in sorted_unique(columns.calls.thread[rows]):
        mine = np.flatnonzero(columns.calls.thread[rows] == thread)
        mine = mine[np.argsort(columns.calls.start[rows[mine]], kind="stable")]
        inside = np.flatnonzero(ops.thread == thread)
        inside = inside[np.lexsort((-ops.end[inside], ops.start[inside]))]
        starts, ends, names = ops.start[inside].tolist(), ops.end[inside].tolist(), ops.name[inside].tolist()
        open_ops: list[int] = []
        following = 0
        for number, moment in zip(mine.tolist(), columns.calls.start[rows[mine]].tolist(), strict=True):
            while following < len(starts) and starts[following] <= moment:
                while open_ops and ends[open_ops[-1]] < starts[following]:
                    open_ops.pop()
                open_ops.append(following)
                following += 1
            while open_ops and ends[open_ops[-1]] < moment:
                open_ops.pop()
            if open_ops:
                found[number] = names[open_ops[-1]]
    return found[inverse]


def _operators_by_id(columns: TraceColumns, external: Column) -> Column:
    """The name id of the operator with each external id; of several, the one that started last, which is innermost."""
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
