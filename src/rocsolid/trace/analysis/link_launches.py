"""Links device events to the runtime calls and operators that launched them."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocsolid.trace.columns import Column, DeviceEvents, HostEvents, TraceColumns, sorted_unique

_GRAPH_LAUNCH: Final = re.compile(r"(cuda|hip|cu)GraphLaunch")
_SYNC: Final = re.compile(r"(cuda|hip|cu)(Device|Stream|Event|Ctx|Context)Synchronize")
_BLOCKING_COPY: Final = re.compile(r"(cuda|hip|cu)Memcpy(?!.*Async)(?!.*Peer)")
_MAX_DEPTH: Final = 200  # of nested operators
_DATA_LOADER: Final = re.compile(r"enumerate\(DataLoader\)|_BaseDataLoaderIter|DataLoaderIter\.__next__")


@dataclass(frozen=True, kw_only=True)
class LaunchLinks:
    """Which runtime call launched each device event, and which calls are graph launches, synchronisations and copies."""

    call_row: Column  # for each device event, the row of the call that launched it; -1 for none
    graph_calls: Column  # the rows of calls that launch a graph
    sync_calls: Column  # the rows of calls that synchronise
    copy_calls: Column  # the rows of blocking copies
    in_graph: Column  # for each device event, whether a graph replay launched it


def link_launches(columns: TraceColumns) -> LaunchLinks:
    """Match device events and calls by their correlation id."""
    calls = columns.calls
    graph_calls = events_named(columns, calls, _GRAPH_LAUNCH)
    in_graph = np.isin(columns.device.correlation, calls.correlation[graph_calls]) & (columns.device.correlation >= 0)
    return LaunchLinks(
        call_row=_launch_call_rows(columns.device, calls),
        graph_calls=graph_calls,
        sync_calls=events_named(columns, calls, _SYNC),
        copy_calls=events_named(columns, calls, _BLOCKING_COPY),
        in_graph=in_graph,
    )


def events_named(columns: TraceColumns, events: HostEvents, pattern: re.Pattern[str]) -> Column:
    """Return the rows of the events whose name matches a pattern."""
    matches = np.array([bool(pattern.match(name)) for name in columns.names], dtype=np.bool_)
    return np.flatnonzero(matches[events.name]) if len(events) else np.zeros(0, dtype=np.int64)


def device_syncs(columns: TraceColumns, links: LaunchLinks) -> Column:
    """Return the rows of the calls that wait for everything on a device."""
    waits = np.array(["DeviceSync" in name or "CtxSync" in name for name in columns.names], dtype=np.bool_)
    return links.sync_calls[waits[columns.calls.name[links.sync_calls]]]


def row_mask(rows: Column, count: int) -> Column:
    """Return a mask of `count` rows that is True for `rows`. numpy's set operations are much slower for millions of rows."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[rows] = True
    return mask


def data_loader_times(columns: TraceColumns) -> tuple[Column, Column]:
    """Return the starts and ends of the times that the host spent in a data loader."""
    loaders = [(table, events_named(columns, table, _DATA_LOADER)) for table in (columns.ops, columns.annotations)]
    return (
        np.concatenate([table.start[rows] for table, rows in loaders]),
        np.concatenate([table.end[rows] for table, rows in loaders]),
    )


def _launch_call_rows(device: DeviceEvents, calls: HostEvents) -> Column:
    """Return for each device event the row of the call with the same correlation id.

    If several calls have this id, it is the latest one that began before the event.
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


@dataclass(frozen=True, kw_only=True)
class Origins:
    """Which operator launched each device event; -1 where it is unknown."""

    operator: Column  # the id of its name
    detail: Column  # the id of its recorded inputs
    call: Column  # tells calls of the operator apart


def find_origins(columns: TraceColumns, links: LaunchLinks) -> Origins:
    """Find the operator that launched each device event."""
    ops = columns.ops
    row = launching_operators(columns, links)
    known = row >= 0
    at = np.maximum(row, 0)
    none = np.full(len(row), -1, dtype=np.int32)
    return Origins(
        operator=np.where(known, ops.name[at], -1).astype(np.int32) if len(ops) else none,
        detail=np.where(known, ops.detail[at], -1).astype(np.int32) if len(ops) else none,
        call=row,
    )


def launching_operators(columns: TraceColumns, links: LaunchLinks) -> Column:
    """Return for each device event the row of the operator that launched it; -1 for none.

    The profiler gives an operator and its work the same external id. For work without one, it is the innermost
    operator that was running when the launch call began.
    """
    found = _operators_by_id(columns, columns.device.external)
    missing = np.flatnonzero((found < 0) & (links.call_row >= 0))
    if len(missing) and len(columns.ops):
        found[missing] = _enclosing_operators(columns, links.call_row[missing])
    return found


def call_operators(columns: TraceColumns, calls: Column) -> Column:
    """Return for each call the row of the operator that made it; -1 for none."""
    found = _operators_by_id(columns, columns.calls.external[calls])
    missing = np.flatnonzero(found < 0)
    if len(missing) and len(columns.ops):
        found[missing] = _enclosing_operators(columns, calls[missing])
    return found


def _enclosing_operators(columns: TraceColumns, calls: Column) -> Column:
    """Return for each call the row of the innermost operator that encloses it; -1 for none."""
    ops = columns.ops
    rows, inverse = np.unique(calls, return_inverse=True)
    found = np.full(len(rows), -1, dtype=np.int64)
    for thread in sorted_unique(columns.calls.thread[rows]):
        thread_calls = np.flatnonzero(columns.calls.thread[rows] == thread)
        thread_calls = thread_calls[np.argsort(columns.calls.start[rows[thread_calls]], kind="stable")]
        thread_ops = np.flatnonzero(ops.thread == thread)
        call_times = columns.calls.start[rows[thread_calls]]
        # Most operators enclose none of these calls.
        enclosed = np.searchsorted(call_times, ops.end[thread_ops], side="right")
        thread_ops = thread_ops[enclosed > np.searchsorted(call_times, ops.start[thread_ops], side="left")]
        thread_ops = thread_ops[np.lexsort((-ops.end[thread_ops], ops.start[thread_ops]))]
        starts, ends = ops.start[thread_ops], ops.end[thread_ops]
        parents = _parents(starts, ends)
        # The operator that began last, or the first of its parents that had not ended.
        at = np.searchsorted(starts, call_times, side="right") - 1
        while len(starts) and (ended := (at >= 0) & (ends[at] < call_times)).any():
            at[ended] = parents[at[ended]]
        found[thread_calls] = np.where(at >= 0, thread_ops[at], -1) if len(starts) else -1
    return found[inverse]


def _parents(starts: Column, ends: Column) -> Column:
    """Return for each operator the one that encloses it; -1 for none. They are sorted by start, the longer first."""
    parents = np.full(len(starts), -1, dtype=np.int64)
    outer_level, left = None, np.arange(len(starts))
    for _ in range(_MAX_DEPTH):
        if not len(left):
            break
        # An operator is at this level if all earlier ones of the level have ended; the others are inside one of them.
        first = np.concatenate(([True], starts[left][1:] >= np.maximum.accumulate(ends[left])[:-1]))
        level, left = left[first], left[~first]
        if outer_level is not None:
            parents[level] = outer_level[np.searchsorted(starts[outer_level], starts[level], side="right") - 1]
        outer_level = level
    return parents


def _operators_by_id(columns: TraceColumns, external: Column) -> Column:
    """Return for each external id the row of its operator; of several, the innermost, which started last."""
    ops = columns.ops
    known = np.flatnonzero(ops.external >= 0)
    if len(known) == 0:
        return np.full(len(external), -1, dtype=np.int64)
    order = known[np.lexsort((ops.start[known], ops.external[known]))]
    ids = ops.external[order]
    last = np.searchsorted(ids, external, side="right") - 1
    has_operator = (last >= 0) & (external >= 0)
    has_operator &= ids[np.maximum(last, 0)] == external
    return np.where(has_operator, order[np.maximum(last, 0)], -1)
