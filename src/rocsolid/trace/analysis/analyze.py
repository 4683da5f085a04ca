"""Analyzes the columns of a trace: one `TraceFile` per file, with one `DeviceTrace` per device."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocsolid.catalog.device_peaks import infer_peaks
from rocsolid.model.trace import CaptureMatch, Category, DeviceRoofline, DeviceTrace, TraceFile
from rocsolid.trace.analysis import host_activity, kernels
from rocsolid.trace.analysis.capture_origins import add_captures
from rocsolid.trace.analysis.capture_windows import CaptureWindows, find_captures
from rocsolid.trace.analysis.counters import counter_rows, described_device, hardware_utilization, kernel_times
from rocsolid.trace.analysis.gaps import classify_gaps, idle_times, longest_gaps
from rocsolid.trace.analysis.intervals import coverage
from rocsolid.trace.analysis.link_launches import LaunchLinks, Origins, find_origins, link_launches
from rocsolid.trace.analysis.plausibility import find_doubts
from rocsolid.trace.columns import Column, EventKind, RowSelection, TraceColumns, select_rows, sorted_unique

# A gap is reported as a jump of the clock if it is longer than both limits.
_MIN_CLOCK_JUMP_NS: Final = 60 * 10**9
_MIN_CLOCK_JUMP_SHARE: Final = 0.9  # of the span of the trace


def analyze_trace(
    file: Path | str, columns: TraceColumns, origins: Origins | None = None, capture: CaptureMatch | None = None
) -> TraceFile:
    """Analyze the columns of one file; `origins` and `capture` are given when a trace of the capture was matched."""
    links = link_launches(columns)
    captures = find_captures(columns, links)
    if origins is None:
        origins = find_origins(columns, links)
        if captures.counts.recorded_launches and links.in_graph.any():  # the captures are in the same trace
            own = add_captures(columns, links, origins, [columns], str(file))
            if own.match.matched_kernels:
                columns, origins, capture = own.columns, own.origins, own.match
    devices = sorted_unique(columns.device.device)
    result = TraceFile(
        file=str(file),
        producer=columns.producer,
        events=columns.events,
        skipped_events=columns.skipped,
        unused_events=columns.unused_events,
        damage=(*columns.damage, *clock_jumps(columns)),
        doubts=find_doubts(columns, links, captures),
        rank=_rank(columns),
        platform=_platform(columns),
        devices=tuple(
            _device(columns, int(device_id), links, origins, captures, only_device=len(devices) == 1)
            for device_id in devices
        ),
        steps=host_activity.steps(columns),
        regions=host_activity.regions(columns),
        graph_breaks=host_activity.graph_breaks(columns),
        captures=captures.counts,
        capture=capture,
        memory=host_activity.memory_curves(columns),
        counters=counter_rows(columns),
        cpu=host_activity.cpu_trace(columns) if not len(devices) else None,
    )
    if not result.counters:
        return result
    hardware = hardware_utilization(result.counters, described_device(columns), kernel_times(result))
    return replace(result, hardware=hardware)


def _device(
    columns: TraceColumns,
    device_id: int,
    links: LaunchLinks,
    origins: Origins,
    captures: CaptureWindows,
    *,
    only_device: bool,
) -> DeviceTrace:
    selection: RowSelection = slice(None) if only_device else np.flatnonzero(columns.device.device == device_id)
    device = select_rows(columns.device, selection)
    origins = Origins(**{name: column[selection] for name, column in vars(origins).items()})
    operator = origins.operator
    in_graph = links.in_graph[selection]
    categories = kernels.event_categories(columns, device, operator)
    peaks = _peaks(columns, device_id)
    operators, order = kernels.operator_rows(columns, device, origins, in_graph, categories, peaks)
    time = device.end - device.start
    is_kernel, is_copy = device.kind == EventKind.KERNEL, device.kind == EventKind.COPY
    replayed = in_graph & is_kernel
    covered = coverage(device.start, device.end)
    gaps = classify_gaps(columns, device, selection, links, covered)
    return DeviceTrace(
        device=str(device_id),
        kernel_count=int(is_kernel.sum()),
        kernel_time_ns=int(time[is_kernel].sum()),
        span_ns=covered.span_ns,
        busy_ns=covered.busy_ns,
        idle_ns=covered.span_ns - covered.busy_ns,
        copy_count=int(is_copy.sum()),
        copy_bytes=int(np.maximum(device.bytes[is_copy], 0).sum()),
        graph_launches=_graph_launches(columns, device.correlation, links, only_device=only_device),
        graph_kernel_count=int(replayed.sum()),
        graph_kernel_time_ns=int(time[replayed].sum()),
        skipped_events=columns.skipped,
        model=_model(columns, device_id),
        compute_units=_device_property(columns, device_id, "compute_units"),
        waves_per_unit=_device_property(columns, device_id, "waves_per_unit"),
        stream_count=len(sorted_unique(device.stream)),
        memset_count=int((device.kind == EventKind.MEMSET).sum()),
        categories=kernels.category_times(device, categories),
        kernels=kernels.with_rates(kernels.kernel_rows(columns, device, in_graph, operator, categories), operators),
        idle=idle_times(gaps, captures),
        gaps=longest_gaps(columns, device, gaps, links, operator),
        copies=kernels.copy_rows(columns, device),
        graphs=host_activity.graph_rows(columns, device, in_graph, links),
        launches=host_activity.launch_stats(columns, device, selection, links),
        operators=operators,
        order=order,
        collectives=host_activity.collective_time(device, categories),
        messages=host_activity.collective_rows(columns, device, categories),
        peaks=peaks,
        unknown_ns=int(time[categories == kernels.CATEGORIES.index(Category.OTHER)].sum()),
    )


def _graph_launches(columns: TraceColumns, correlation: Column, links: LaunchLinks, *, only_device: bool) -> int:
    """Count the graph launches of a device.

    If the file has only one device, these are all graph launches. Otherwise they are those that started kernels or copies on it.
    """
    if only_device:
        return len(links.graph_calls)
    return int(np.isin(columns.calls.correlation[links.graph_calls], correlation).sum())


def clock_jumps(columns: TraceColumns) -> tuple[str, ...]:
    """Return a message for each device with one gap of over a minute that is over 90 % of the trace.

    The reason is a change of the clock while the trace was recorded, or two runs in one file.
    """
    messages = []
    for device_id in sorted_unique(columns.device.device):
        on_device = columns.device.device == device_id
        start, end = columns.device.start[on_device], columns.device.end[on_device]
        if int(end.max()) - int(start.min()) <= _MIN_CLOCK_JUMP_NS:
            continue
        covered = coverage(start, end)
        longest_ns = int((covered.gap_end - covered.gap_start).max(initial=0))
        if longest_ns > _MIN_CLOCK_JUMP_NS and longest_ns > _MIN_CLOCK_JUMP_SHARE * covered.span_ns:
            messages.append(
                f"the clock of device {device_id} probably jumped: one gap of {longest_ns / 1e9:.0f} s "
                f"is over {_MIN_CLOCK_JUMP_SHARE:.0%} of the trace"
            )
    return tuple(messages)


def _rank(columns: TraceColumns) -> int | None:
    info = columns.metadata.get("distributedInfo")
    value = info.get("rank") if isinstance(info, dict) else None
    return value if isinstance(value, int) else None


def _platform(columns: TraceColumns) -> str:
    """Return `rocm`, `cuda` or nothing, from the names of runtime calls: ROCm builds use CUDA's category names."""
    called = [columns.names[name_id] for name_id in sorted_unique(columns.calls.name)]
    if columns.producer.startswith("rocp") or any(name.startswith("hip") for name in called):
        return "rocm"
    if any(name.startswith("cu") for name in called):
        return "cuda"
    return "rocm" if any(key.startswith(("hip_", "roctracer")) for key in columns.metadata) else ""


def _device_properties(columns: TraceColumns) -> list[dict[str, Any]]:
    listed = columns.metadata.get("deviceProperties")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _device_property(columns: TraceColumns, device_id: int, name: str) -> int:
    values = [entry.get(name) for entry in _device_properties(columns) if entry.get("id") == device_id]
    return values[0] if values and isinstance(values[0], int) else 0


def _peaks(columns: TraceColumns, device_id: int) -> DeviceRoofline | None:
    """Return the peaks of a device, by its name or else by its compute units and memory."""
    model = _model(columns, device_id)
    listed = _device_properties(columns)
    entry = next((e for e in listed if e.get("id") == device_id), listed[0] if listed else {})
    units, memory = (entry.get(name) for name in ("numSms", "totalGlobalMem"))
    units = units if isinstance(units, int) else _device_property(columns, device_id, "compute_units")
    found = infer_peaks(model, compute_units=units, memory_bytes=memory if isinstance(memory, int) else 0)
    if found is None:
        return None
    return DeviceRoofline(
        chip=found.name,
        memory_gb_per_s=found.memory_gb_per_s,
        tflops=found.tflops,
        inferred=found.name.split()[0] not in model,
    )


def _model(columns: TraceColumns, device_id: int) -> str:
    """Return the name of a device. If its id is not listed, return the name that all listed devices share, if any."""
    by_id = {str(entry.get("id")): str(entry.get("name") or "") for entry in _device_properties(columns)}
    names = {name for name in by_id.values() if name}
    return by_id.get(str(device_id)) or (names.pop() if len(names) == 1 else "")
