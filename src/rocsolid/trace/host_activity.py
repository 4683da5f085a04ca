"""What the host did: launches, graph replays, steps, compiled regions, memory."""

import re
from typing import Final

import numpy as np

from rocsolid.model.trace import CallRow, Category, CollectiveTime, GraphRow, Launches, MemoryUse, Region
from rocsolid.trace.categories import category
from rocsolid.trace.columns import Column, Columns, DeviceEvents, HostEvents, Kind, Which
from rocsolid.trace.intervals import overlap, total, union
from rocsolid.trace.kernels import group, rank
from rocsolid.trace.link_launches import Links, among, named

_STEP: Final = re.compile(r"ProfilerStep#\d+")
_COMPILED: Final = re.compile(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|CompiledFxGraph|Inductor|TorchDynamo|Pregraph bytecode"
)
_BREAK: Final = re.compile(r"Torch-Compiled Region: \d+/\d+")
_CURVE: Final = 1500


def launch_statistics(columns: Columns, device: DeviceEvents, which: Which, links: Links) -> Launches:
    """How work reached the device, and how long that took."""
    calls = columns.calls
    call = links.call[which]
    linked = np.flatnonzero(call >= 0)
    alone = linked[~links.in_graph[which][linked]]
    kernels = alone[device.kind[alone] == Kind.KERNEL]
    time = calls.end - calls.start
    # A launch cannot take effect before it is made; where clocks disagree it counts as no delay.
    delay = np.sort(np.maximum(device.start[alone] - calls.start[call[alone]], 0))
    used = np.sort(time[among(call[alone], len(calls))])
    rows = []
    for name, members in group(calls.name, time):
        mine = time[members]
        rows.append(
            CallRow(name=columns.names[name], count=len(mine), total_ns=int(mine.sum()), p50_ns=rank(mine, 0.5))
        )
    return Launches(
        launch_count=int(among(call[linked], len(calls)).sum()),
        call_p50_ns=rank(used, 0.5) if len(used) else 0,
        delay_p50_ns=rank(delay, 0.5) if len(delay) else 0,
        delay_p99_ns=rank(delay, 0.99) if len(delay) else 0,
        short_kernel_count=int((device.end[kernels] - device.start[kernels] < time[call[kernels]]).sum()),
        unlinked_count=int((call < 0).sum()),
        sync_count=len(links.sync_calls),
        sync_time_ns=int(time[links.sync_calls].sum()),
        calls=tuple(sorted(rows, key=lambda row: -row.total_ns)),
    )


def graph_rows(columns: Columns, device: DeviceEvents, in_graph: Column, links: Links) -> tuple[GraphRow, ...]:
    """Replays, those of as many kernels of the same names taken together."""
    kernels = np.flatnonzero(in_graph & (device.kind == Kind.KERNEL))
    if not len(kernels):
        return ()
    calls = columns.calls
    launched = calls.correlation[links.graph_calls], (calls.end - calls.start)[links.graph_calls]
    time_of = dict(zip(*(column.tolist() for column in launched), strict=True))
    replays = group(device.correlation[kernels], device.start[kernels])
    ordered = kernels[replays.order]
    times = np.add.reduceat((device.end - device.start)[ordered], replays.begin)
    firsts = device.name[ordered[replays.begin]]
    # Within each replay by name: two that hold the same names hold the same bytes.
    names = device.name[kernels[np.lexsort((device.name[kernels], device.correlation[kernels]))]]
    seen: dict[tuple[int, bytes], list[int]] = {}
    each = zip(*(c.tolist() for c in (replays.keys, replays.begin, replays.end, times, firsts)), strict=True)
    for correlation, begin, end, time, first in each:
        row = seen.setdefault((end - begin, names[begin:end].tobytes()), [0, 0, first, 0])
        row[0] += 1
        row[1] += time
        row[3] += time_of.get(correlation, 0)
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


def collective_time(columns: Columns, device: DeviceEvents) -> CollectiveTime:
    """Communication, and how much of it ran with nothing else beside it."""
    speaks = np.array([category(name) is Category.COLLECTIVE for name in columns.names], dtype=np.bool_)
    mine = speaks[device.name] & (device.kind == Kind.KERNEL)
    if not mine.any():
        return CollectiveTime()
    start, end = union(device.start[mine], device.end[mine])
    hidden = int(overlap(start, end, device.start[~mine], device.end[~mine]).sum())
    return CollectiveTime(count=int(mine.sum()), time_ns=total(start, end), exposed_ns=total(start, end) - hidden)


def steps(columns: Columns) -> tuple[Region, ...]:
    """Steps of the profiler, each by itself."""
    which = named(columns, columns.notes, _STEP)
    notes = columns.notes
    return tuple(
        _region(columns.names[notes.name[n]], (notes.end - notes.start)[n : n + 1])
        for n in which[np.argsort(notes.start[which], kind="stable")]
    )


def regions(columns: Columns) -> tuple[Region, ...]:
    """Compiled regions and the compiler's own marks, and every other annotation."""
    found = [
        *_regions(columns, columns.ops, named(columns, columns.ops, _COMPILED)),
        *_regions(
            columns,
            columns.notes,
            np.flatnonzero(~among(named(columns, columns.notes, _STEP), len(columns.notes))),
        ),
    ]
    return tuple(sorted(found, key=lambda region: -region.total_ns)[:_REGIONS])


_REGIONS: Final = 200


def graph_breaks(columns: Columns) -> int:
    """Compiled regions beyond the first: each began where the one before had to stop."""
    return max(0, sum(bool(_BREAK.match(name)) for name in columns.names) - 1)


def _regions(columns: Columns, events: HostEvents, which: Column) -> list[Region]:
    time = events.end - events.start
    return [
        _region(columns.names[name], time[which[members]]) for name, members in group(events.name[which], time[which])
    ]


def _region(name: str, times: Column) -> Region:
    return Region(
        name=name,
        count=len(times),
        total_ns=int(times.sum()),
        p50_ns=rank(times, 0.5),
        shortest_ns=int(times[0]),
        longest_ns=int(times[-1]),
    )


def memory_use(columns: Columns) -> tuple[MemoryUse, ...]:
    """The allocator's curve of each device, with its peaks kept."""
    memory = columns.memory
    found = []
    for device, members in group(memory.device, memory.at):
        allocated = memory.allocated[members]
        if device < 0 or not len(allocated):
            continue
        parts = np.array_split(np.arange(len(allocated)), min(_CURVE, len(allocated)))
        peaks = np.array([part[np.argmax(allocated[part])] for part in parts])
        found.append(
            MemoryUse(
                device=str(device),
                peak_bytes=int(allocated.max()),
                at_ns=tuple((memory.at[members][peaks] - memory.at[members][0]).tolist()),
                allocated_bytes=tuple(allocated[peaks].tolist()),
            )
        )
    return tuple(found)
