"""Launches, graph replays, steps, compiled regions, collectives and memory."""

import re
from typing import Final

import numpy as np

from rocsolid.model.trace import (
    Category,
    CollectiveTime,
    GraphRow,
    HostRegion,
    LaunchStats,
    MemoryCurve,
    RuntimeCallRow,
)
from rocsolid.trace.analysis.categories import category
from rocsolid.trace.analysis.intervals import overlap, total, union
from rocsolid.trace.analysis.kernels import group_rows, percentile
from rocsolid.trace.analysis.link_launches import LaunchLinks, events_named, row_mask
from rocsolid.trace.columns import Column, DeviceEvents, EventKind, HostEvents, RowSelection, TraceColumns

_STEP: Final = re.compile(r"ProfilerStep#\d+")
_COMPILED: Final = re.compile(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|CompiledFxGraph|Inductor|TorchDynamo|Pregraph bytecode"
)
_REGION: Final = re.compile(r"Torch-Compiled Region: \d+/\d+")
_CURVE_POINTS: Final = 1500
_MAX_REGIONS: Final = 200


def launch_stats(
    columns: TraceColumns, device: DeviceEvents, selection: RowSelection, links: LaunchLinks
) -> LaunchStats:
    """Launch calls, launch latency and synchronisations of a device."""
    calls = columns.calls
    call = links.call[selection]
    linked = np.flatnonzero(call >= 0)
    single = linked[~links.in_graph[selection][linked]]  # launched one by one, not by a graph
    kernels = single[device.kind[single] == EventKind.KERNEL]
    time = calls.end - calls.start
    # Where the clocks of host and device disagree, work can seem to start before its launch. That is no latency.
    delay = np.sort(np.maximum(device.start[single] - calls.start[call[single]], 0))
    used = np.sort(time[row_mask(call[single], len(calls))])
    rows = []
    for name, members in group_rows(calls.name, time):
        mine = time[members]
        rows.append(
            RuntimeCallRow(
                name=columns.names[name], count=len(mine), total_ns=int(mine.sum()), p50_ns=percentile(mine, 0.5)
            )
        )
    return LaunchStats(
        launch_count=int(row_mask(call[linked], len(calls)).sum()),
        call_p50_ns=percentile(used, 0.5) if len(used) else 0,
        delay_p50_ns=percentile(delay, 0.5) if len(delay) else 0,
        delay_p99_ns=percentile(delay, 0.99) if len(delay) else 0,
        short_kernel_count=int((device.end[kernels] - device.start[kernels] < time[call[kernels]]).sum()),
        unlinked_count=int((call < 0).sum()),
        sync_count=len(links.sync_calls),
        sync_time_ns=int(time[links.sync_calls].sum()),
        calls=tuple(sorted(rows, key=lambda row: -row.total_ns)),
    )


def graph_rows(
    columns: TraceColumns, device: DeviceEvents, in_graph: Column, links: LaunchLinks
) -> tuple[GraphRow, ...]:
    """Graph replays, grouped by the number and the names of their kernels."""
    kernels = np.flatnonzero(in_graph & (device.kind == EventKind.KERNEL))
    if not len(kernels):
        return ()
    calls = columns.calls
    launched = calls.correlation[links.graph_calls], (calls.end - calls.start)[links.graph_calls]
    launch_ns = dict(zip(*(column.tolist() for column in launched), strict=True))
    replays = group_rows(device.correlation[kernels], device.start[kernels])
    ordered = kernels[replays.order]
    times = np.add.reduceat((device.end - device.start)[ordered], replays.begin)
    firsts = device.name[ordered[replays.begin]]
    # Sorted by name within each replay, so that replays of the same kernels have equal bytes.
    names = device.name[kernels[np.lexsort((device.name[kernels], device.correlation[kernels]))]]
    seen: dict[tuple[int, bytes], list[int]] = {}
    each = zip(*(c.tolist() for c in (replays.keys, replays.begin, replays.end, times, firsts)), strict=True)
    for correlation, begin, end, time, first in each:
        row = seen.setdefault((end - begin, names[begin:end].tobytes()), [0, 0, first, 0])
        row[0] += 1
        row[1] += time
        row[3] += launch_ns.get(correlation, 0)
    found = [
        GraphRow(
            launches=launches,
            kernels_each=key[0],
            kernel_time_ns=time,
            first_kernel=columns.names[first],
            launch_mean_ns=calls_ns / launches,
        )
        for key, (launches, time, first, calls_ns) in seen.items()
    ]
    return tuple(sorted(found, key=lambda row: -row.kernel_time_ns))


def collective_time(columns: TraceColumns, device: DeviceEvents) -> CollectiveTime:
    """Time in collectives, and the part during which no other work ran (exposed)."""
    is_collective = np.array([category(name) is Category.COLLECTIVE for name in columns.names], dtype=np.bool_)
    mine = is_collective[device.name] & (device.kind == EventKind.KERNEL)
    if not mine.any():
        return CollectiveTime()
    start, end = union(device.start[mine], device.end[mine])
    hidden = int(overlap(start, end, device.start[~mine], device.end[~mine]).sum())
    return CollectiveTime(count=int(mine.sum()), time_ns=total(start, end), exposed_ns=total(start, end) - hidden)


def steps(columns: TraceColumns) -> tuple[HostRegion, ...]:
    """The profiler steps in time order."""
    notes = columns.annotations
    found = events_named(columns, notes, _STEP)
    return tuple(
        _region(columns.names[notes.name[n]], (notes.end - notes.start)[n : n + 1])
        for n in found[np.argsort(notes.start[found], kind="stable")]
    )


def regions(columns: TraceColumns) -> tuple[HostRegion, ...]:
    """Compiled regions, marks of the compiler and all annotations except steps."""
    found = [
        *_regions(columns, columns.ops, events_named(columns, columns.ops, _COMPILED)),
        *_regions(
            columns,
            columns.annotations,
            np.flatnonzero(~row_mask(events_named(columns, columns.annotations, _STEP), len(columns.annotations))),
        ),
    ]
    return tuple(sorted(found, key=lambda region: -region.total_ns)[:_MAX_REGIONS])


def graph_breaks(columns: TraceColumns) -> int:
    """The number of compiled regions minus one: each further region starts at a graph break or recompile."""
    return max(0, sum(bool(_REGION.match(name)) for name in columns.names) - 1)


def _regions(columns: TraceColumns, events: HostEvents, rows: Column) -> list[HostRegion]:
    time = events.end - events.start
    return [
        _region(columns.names[name], time[rows[members]]) for name, members in group_rows(events.name[rows], time[rows])
    ]


def _region(name: str, times: Column) -> HostRegion:
    """`times` must be sorted."""
    return HostRegion(
        name=name,
        count=len(times),
        total_ns=int(times.sum()),
        p50_ns=percentile(times, 0.5),
        shortest_ns=int(times[0]),
        longest_ns=int(times[-1]),
    )


def memory_curves(columns: TraceColumns) -> tuple[MemoryCurve, ...]:
    """Allocated bytes over time for each device, reduced to the peak of each section of the trace."""
    memory = columns.memory
    found = []
    for device, members in group_rows(memory.device, memory.at):
        allocated = memory.allocated[members]
        if device < 0 or not len(allocated):
            continue
        parts = np.array_split(np.arange(len(allocated)), min(_CURVE_POINTS, len(allocated)))
        peaks = np.array([part[np.argmax(allocated[part])] for part in parts])
        found.append(
            MemoryCurve(
                device=str(device),
                peak_bytes=int(allocated.max()),
                at_ns=tuple((memory.at[members][peaks] - memory.at[members][0]).tolist()),
                allocated_bytes=tuple(allocated[peaks].tolist()),
            )
        )
    return tuple(found)
