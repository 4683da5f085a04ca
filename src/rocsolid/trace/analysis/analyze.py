"""Analyzes the columns of a trace: one `TraceFile` per file, with one `DeviceTrace` per device."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.trace.analysis import host_activity, kernels
from rocsolid.trace.analysis.capture_windows import CaptureWindows, find_captures
from rocsolid.trace.analysis.counters import counter_rows, described_device, hardware_utilization, kernel_times
from rocsolid.trace.analysis.gaps import classify_gaps, idle_times, longest_gaps
from rocsolid.trace.analysis.intervals import coverage
from rocsolid.trace.analysis.link_launches import LaunchLinks, launching_operators, link_launches
from rocsolid.trace.columns import Column, EventKind, RowSelection, TraceColumns, select_rows, sorted_unique

_CLOCK_JUMP_NS: Final = 60 * 10**9


def analyze_trace(file: Path | str, columns: TraceColumns) -> TraceFile:
    """The complete analysis of one file."""
    links = link_launches(columns)
    operators = launching_operators(columns, links)
    captures = find_captures(columns, links)
    devices = sorted_unique(columns.device.device)
    found = TraceFile(
        file=str(file),
        producer=columns.producer,
        events=columns.events,
        skipped_events=columns.skipped,
        unused_events=columns.unused_events,
        damage=(*columns.damage, *clock_jumps(columns)),
        rank=_rank(columns),
        platform=_platform(columns),
        devices=tuple(
            _device(columns, int(d), links, operators, captures, only_device=len(devices) == 1) for d in devices
        ),
        steps=host_activity.steps(columns),
        regions=host_activity.regions(columns),
        graph_breaks=host_activity.graph_breaks(columns),
        captures=captures.counts,
        memory=host_activity.memory_curves(columns),
        counters=counter_rows(columns),
    )
    if not found.counters:
        return found
    return replace(found, hardware=hardware_utilization(found.counters, described_device(columns), kernel_times(found)))


def _device(
    columns: TraceColumns,
    number: int,
    links: LaunchLinks,
    operators: Column,
    captures: CaptureWindows,
    *,
    only_device: bool,
) -> DeviceTrace:
    selection: RowSelection = slice(None) if only_device else np.flatnonzero(columns.device.device == number)
    device = select_rows(columns.device, selection)
    operator = operators[selection]
    in_graph = links.in_graph[selection]
    time = device.end - device.start
    is_kernel, is_copy = device.kind == EventKind.KERNEL, device.kind == EventKind.COPY
    replayed = in_graph & is_kernel
    covered = coverage(device.start, device.end)
    gaps = classify_gaps(columns, device, selection, links, covered)
    return DeviceTrace(
        device=str(number),
        kernel_count=int(is_kernel.sum()),
        kernel_time_ns=int(time[is_kernel].sum()),
        span_ns=covered.span,
        busy_ns=covered.busy,
        idle_ns=covered.span - covered.busy,
        copy_count=int(is_copy.sum()),
        copy_bytes=int(np.maximum(device.bytes[is_copy], 0).sum()),
        graph_launches=_graph_launches(columns, device.correlation, links, only_device=only_device),
        graph_kernel_count=int(replayed.sum()),
        graph_kernel_time_ns=int(time[replayed].sum()),
        skipped_events=columns.skipped,
        model=_model(columns, number),
        compute_units=_device_property(columns, number, "compute_units"),
        waves_per_unit=_device_property(columns, number, "waves_per_unit"),
        stream_count=len(sorted_unique(device.stream)),
        memset_count=int((device.kind == EventKind.MEMSET).sum()),
        categories=kernels.category_times(columns, device),
        kernels=kernels.kernel_rows(columns, device, in_graph, operator),
        idle=idle_times(gaps, captures),
        gaps=longest_gaps(columns, device, gaps, links, operator),
        copies=kernels.copy_rows(columns, device),
        graphs=host_activity.graph_rows(columns, device, in_graph, links),
        launches=host_activity.launch_stats(columns, device, selection, links),
        operators=kernels.operator_rows(columns, device, operator),
        collectives=host_activity.collective_time(columns, device),
    )


def _graph_launches(columns: TraceColumns, correlation: Column, links: LaunchLinks, *, only_device: bool) -> int:
    """All graph launches in a file with one device; otherwise those that launched work on this device."""
    if only_device:
        return len(links.graph_calls)
    return int(np.isin(columns.calls.correlation[links.graph_calls], correlation).sum())


def clock_jumps(columns: TraceColumns) -> tuple[str, ...]:
    """A message for each device with one gap over a minute that is over 90 % of the trace.

    The clock was changed while the trace was recorded, or the file holds two runs.
    """
    found = []
    for number in sorted_unique(columns.device.device):
        mine = columns.device.device == number
        covered = coverage(columns.device.start[mine], columns.device.end[mine])
        lengths = covered.gap_end - covered.gap_start
        longest = int(lengths.max(initial=0))
        if longest > _CLOCK_JUMP_NS and longest > 0.9 * covered.span:
            found.append(
                f"the clock of device {number} jumps by {longest / 1e9:.0f} s: one gap is nearly the whole trace"
            )
    return tuple(found)


def _rank(columns: TraceColumns) -> int | None:
    info = columns.metadata.get("distributedInfo")
    value = info.get("rank") if isinstance(info, dict) else None
    return value if isinstance(value, int) else None


def _platform(columns: TraceColumns) -> str:
    """`rocm`, `cuda` or empty, by the names of runtime calls: ROCm builds use CUDA's category names."""
    called = [columns.names[n] for n in sorted_unique(columns.calls.name)]
    if columns.producer.startswith("rocp") or any(name.startswith("hip") for name in called):
        return "rocm"
    if any(name.startswith("cu") for name in called):
        return "cuda"
    return "rocm" if any(key.startswith(("hip_", "roctracer")) for key in columns.metadata) else ""


def _device_properties(columns: TraceColumns) -> list[dict[str, Any]]:
    listed = columns.metadata.get("deviceProperties")
    return [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []


def _device_property(columns: TraceColumns, number: int, name: str) -> int:
    values = [e.get(name) for e in _device_properties(columns) if e.get("id") == number]
    return values[0] if values and isinstance(values[0], int) else 0


def _model(columns: TraceColumns, number: int) -> str:
    """The device's name. When its id is not listed, the name of the listed devices, if they all share one."""
    by_id = {e.get("id"): str(e.get("name") or "") for e in _device_properties(columns)}
    names = {name for name in by_id.values() if name}
    return by_id.get(number) or (names.pop() if len(names) == 1 else "")
