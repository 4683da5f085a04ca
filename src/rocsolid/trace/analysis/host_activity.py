"""Computes launch statistics, graph replays, steps, compiled regions, CPU operators, collective time and memory."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from rocsolid.model.trace import (
    Category,
    CollectiveRow,
    CollectiveTime,
    CpuOperatorRow,
    CpuTrace,
    GraphRow,
    HostRegion,
    LaunchStats,
    MemoryCurve,
    RuntimeCallRow,
)
from rocsolid.trace.analysis.cost_model import parse_message
from rocsolid.trace.analysis.intervals import coverage, overlap, total_time, union
from rocsolid.trace.analysis.kernels import CATEGORIES, group_rows, percentile
from rocsolid.trace.analysis.link_launches import LaunchLinks, events_named, row_mask
from rocsolid.trace.columns import (
    Column,
    DeviceEvents,
    EventKind,
    HostEvents,
    MemoryEvents,
    RowSelection,
    TraceColumns,
    sorted_unique,
)

_STEP: Final = re.compile(r"ProfilerStep#\d+")
_COMPILED: Final = re.compile(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|CompiledFxGraph|Inductor|TorchDynamo|Pregraph bytecode"
)
_REGION: Final = re.compile(r"Torch-Compiled Region: \d+/\d+")
_MAX_CURVE_POINTS: Final = 1500
_MAX_REGIONS: Final = 200


def launch_stats(
    columns: TraceColumns, device: DeviceEvents, selection: RowSelection, links: LaunchLinks
) -> LaunchStats:
    """Compute the statistics of the launch calls and synchronisations of a device."""
    calls = columns.calls
    call_row = links.call_row[selection]
    linked = np.flatnonzero(call_row >= 0)
    single = linked[~links.in_graph[selection][linked]]  # launched one by one, not by a graph
    kernels = single[device.kind[single] == EventKind.KERNEL]
    time = calls.end - calls.start
    # If the clocks of host and device differ, work can seem to start before its launch. Its latency counts as 0.
    latency = np.sort(np.maximum(device.start[single] - calls.start[call_row[single]], 0))
    launch_times = np.sort(time[row_mask(call_row[single], len(calls))])
    rows = []
    for name, members in group_rows(calls.name, time):
        call_times = time[members]
        rows.append(
            RuntimeCallRow(
                name=columns.names[name],
                count=len(call_times),
                total_ns=int(call_times.sum()),
                p50_ns=percentile(call_times, 0.5),
            )
        )
    return LaunchStats(
        launch_count=int(row_mask(call_row[linked], len(calls)).sum()),
        call_p50_ns=percentile(launch_times, 0.5) if len(launch_times) else 0,
        latency_p50_ns=percentile(latency, 0.5) if len(latency) else 0,
        latency_p99_ns=percentile(latency, 0.99) if len(latency) else 0,
        short_kernel_count=int((device.end[kernels] - device.start[kernels] < time[call_row[kernels]]).sum()),
        unlinked_count=int((call_row < 0).sum()),
        sync_count=len(links.sync_calls),
        sync_time_ns=int(time[links.sync_calls].sum()),
        calls=tuple(sorted(rows, key=lambda row: -row.total_ns)),
    )


def graph_rows(
    columns: TraceColumns, device: DeviceEvents, in_graph: Column, links: LaunchLinks
) -> tuple[GraphRow, ...]:
    """Group the graph replays by the number and the names of their kernels."""
    kernels = np.flatnonzero(in_graph & (device.kind == EventKind.KERNEL))
    if not len(kernels):
        return ()
    calls = columns.calls
    launches = calls.correlation[links.graph_calls], (calls.end - calls.start)[links.graph_calls]
    launch_ns = dict(zip(*(column.tolist() for column in launches), strict=True))  # by correlation id
    replays = group_rows(device.correlation[kernels], device.start[kernels])
    ordered = kernels[replays.sorted_rows]
    times = np.add.reduceat((device.end - device.start)[ordered], replays.begin)
    first_names = device.name[ordered[replays.begin]]
    # Sorted by name within each replay, so that replays of the same kernels have equal bytes.
    names = device.name[kernels[np.lexsort((device.name[kernels], device.correlation[kernels]))]]
    # By number and names of kernels: replays, kernel time, name of the first kernel, time of the launch calls.
    groups: dict[tuple[int, bytes], list[int]] = {}
    replay_rows = zip(
        *(c.tolist() for c in (replays.keys, replays.begin, replays.end, times, first_names)), strict=True
    )
    for correlation, begin, end, time, first_name in replay_rows:
        row = groups.setdefault((end - begin, names[begin:end].tobytes()), [0, 0, first_name, 0])
        row[0] += 1
        row[1] += time
        row[3] += launch_ns.get(correlation, 0)
    rows = [
        GraphRow(
            launches=count,
            kernels_each=key[0],
            kernel_time_ns=time,
            first_kernel=columns.names[first_name],
            launch_mean_ns=calls_ns / count,
        )
        for key, (count, time, first_name, calls_ns) in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.kernel_time_ns))


def collective_rows(columns: TraceColumns, device: DeviceEvents, categories: Column) -> tuple[CollectiveRow, ...]:
    """Return the collectives by kind and message size, the most time first."""
    is_collective = categories == CATEGORIES.index(Category.COLLECTIVE)
    others = ~is_collective
    rows = []
    for detail, members in group_rows(np.where(is_collective, device.detail, -1)):
        message = parse_message(columns.details[detail]) if detail >= 0 else None
        if message is None:
            continue
        start, end = device.start[members], device.end[members]
        hidden = overlap(start, end, device.start[others], device.end[others])
        times = end - start
        shortest = int(times.min())
        rows.append(
            CollectiveRow(
                name=message.collective,
                count=len(members),
                bytes=message.bytes,
                ranks=message.ranks,
                time_ns=int(times.sum()),
                exposed_ns=int((times - hidden).sum()),
                shortest_ns=shortest,
                longest_ns=int(times.max()),
                bus_gb_per_s=message.bus_bytes / max(shortest, 1),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def collective_time(device: DeviceEvents, categories: Column) -> CollectiveTime:
    """Return the time in collectives, and the exposed part of it, during which no other work ran."""
    selected = (categories == CATEGORIES.index(Category.COLLECTIVE)) & (device.kind == EventKind.KERNEL)
    if not selected.any():
        return CollectiveTime()
    start, end = union(device.start[selected], device.end[selected])
    hidden_ns = int(overlap(start, end, device.start[~selected], device.end[~selected]).sum())
    time_ns = total_time(start, end)
    return CollectiveTime(count=int(selected.sum()), time_ns=time_ns, exposed_ns=time_ns - hidden_ns)


def steps(columns: TraceColumns) -> tuple[HostRegion, ...]:
    """Return the profiler steps in time order."""
    annotations = columns.annotations
    rows = events_named(columns, annotations, _STEP)
    return tuple(
        _region(columns.names[annotations.name[row]], (annotations.end - annotations.start)[row : row + 1])
        for row in rows[np.argsort(annotations.start[rows], kind="stable")]
    )


def regions(columns: TraceColumns) -> tuple[HostRegion, ...]:
    """Return compiled regions, other events of the compiler, and all annotations except steps."""
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
    """Return the number of compiled regions minus one: each further region starts at a graph break or recompile."""
    return max(0, sum(bool(_REGION.match(name)) for name in columns.names) - 1)


def cpu_trace(columns: TraceColumns) -> CpuTrace | None:
    """Return the time by operator on the CPU; None when the trace has no operators."""
    ops = columns.ops
    if not len(ops):
        return None
    own = _own_times(ops)
    total = ops.end - ops.start
    counts, sizes = _allocations(ops, columns.memory)
    rows = [
        CpuOperatorRow(
            name=columns.names[name],
            calls=len(members),
            own_ns=int(own[members].sum()),
            total_ns=int(total[members].sum()),
            allocations=int(counts[members].sum()),
            allocated_bytes=int(sizes[members].sum()),
        )
        for name, members in group_rows(ops.name)
    ]
    covered = coverage(ops.start, ops.end)
    return CpuTrace(
        span_ns=covered.span_ns,
        busy_ns=covered.busy_ns,
        thread_count=len(sorted_unique(ops.thread)),
        operators=tuple(sorted(rows, key=lambda row: (-row.own_ns, row.name))),
    )


def operator_times(columns: TraceColumns) -> dict[str, tuple[Column, Column]]:
    """Return for each thread the starts of its operators, sorted, and their own times."""
    ops, own = columns.ops, _own_times(columns.ops)
    return {
        columns.threads[thread]: (ops.start[members], own[members])
        for thread, members in group_rows(ops.thread, ops.start)
    }


def _own_times(ops: HostEvents) -> Column:
    """Return the time of each operator without the operators that it calls, which run inside it on the same thread."""
    own: Column = ops.end - ops.start
    for _, caller, inside in _callers(ops):
        own[caller] -= inside
    return own


def _callers(ops: HostEvents) -> Iterator[tuple[int, int, int]]:
    """Yield each operator that another one calls, the operator that calls it, and the time that it takes inside of that."""
    order = np.lexsort((-ops.end, ops.start, ops.thread))
    running: list[tuple[int, int, int]] = []  # thread, end and row
    for row, thread, start, end in zip(
        *(column[order].tolist() for column in (np.arange(len(ops)), ops.thread, ops.start, ops.end)), strict=True
    ):
        while running and (running[-1][0] != thread or running[-1][1] <= start):
            running.pop()
        if running:
            yield row, running[-1][2], min(end, running[-1][1]) - start
        running.append((thread, end, row))


def _allocations(ops: HostEvents, memory: MemoryEvents) -> tuple[Column, Column]:
    """Return for each operator how many allocations on the CPU it made itself, and their sizes together."""
    counts, sizes = np.zeros(len(ops), np.int64), np.zeros(len(ops), np.int64)
    made = np.flatnonzero((memory.device < 0) & (memory.change > 0))
    if not len(made):
        return counts, sizes
    callers = {row: caller for row, caller, _ in _callers(ops)}
    for thread, members in group_rows(ops.thread, ops.start):
        events = made[memory.thread[made] == thread]
        latest = np.searchsorted(ops.start[members], memory.time[events], side="right") - 1
        for event, position in zip(events.tolist(), latest.tolist(), strict=True):
            row = int(members[position]) if position >= 0 else None
            while row is not None and ops.end[row] < memory.time[event]:
                row = callers.get(row)
            if row is not None:
                counts[row] += 1
                sizes[row] += memory.change[event]
    return counts, sizes


def _regions(columns: TraceColumns, events: HostEvents, rows: Column) -> list[HostRegion]:
    time = events.end - events.start
    return [
        _region(columns.names[name], time[rows[members]]) for name, members in group_rows(events.name[rows], time[rows])
    ]


def _region(name: str, times: Column) -> HostRegion:
    """Return the row for a region. `times` must be sorted."""
    return HostRegion(
        name=name,
        count=len(times),
        total_ns=int(times.sum()),
        p50_ns=percentile(times, 0.5),
        shortest_ns=int(times[0]),
        longest_ns=int(times[-1]),
    )


def memory_curves(columns: TraceColumns) -> tuple[MemoryCurve, ...]:
    """Return the allocated bytes over time for each device. Each point is the peak of one section of the trace."""
    memory = columns.memory
    curves = []
    for device, members in group_rows(memory.device, memory.time):
        allocated = memory.allocated[members]
        if device < 0 or not len(allocated):
            continue
        parts = np.array_split(np.arange(len(allocated)), min(_MAX_CURVE_POINTS, len(allocated)))
        peaks = np.array([part[np.argmax(allocated[part])] for part in parts])
        curves.append(
            MemoryCurve(
                device=str(device),
                peak_bytes=int(allocated.max()),
                times_ns=tuple((memory.time[members][peaks] - memory.time[members][0]).tolist()),
                allocated_bytes=tuple(allocated[peaks].tolist()),
            )
        )
    return tuple(curves)
