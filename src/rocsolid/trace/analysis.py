"""Columns into answers: one `TraceFile` for a file, one `DeviceTrace` for each device in it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.trace import host_activity, kernels
from rocsolid.trace.capture_windows import Capturing, captures
from rocsolid.trace.columns import Column, Columns, Kind, Which, distinct, rows
from rocsolid.trace.counters import counter_rows, hardware_use, kernel_times, seen_device
from rocsolid.trace.gaps import idle_times, judge_gaps, largest_gaps
from rocsolid.trace.intervals import cover
from rocsolid.trace.link_launches import Links, launching_operators, link


def answer(file: Path | str, columns: Columns) -> TraceFile:
    """Everything we know about a file."""
    links = link(columns)
    operator = launching_operators(columns, links)
    capturing = captures(columns, links)
    present = distinct(columns.device.device)
    found = TraceFile(
        file=str(file),
        producer=columns.producer,
        events=columns.events,
        skipped_events=columns.skipped,
        set_aside=columns.set_aside,
        damage=(*columns.damage, *clock_jumps(columns)),
        rank=_rank(columns),
        platform=_platform(columns),
        devices=tuple(_device(columns, int(d), links, operator, capturing, alone=len(present) == 1) for d in present),
        steps=host_activity.steps(columns),
        regions=host_activity.regions(columns),
        graph_breaks=host_activity.graph_breaks(columns),
        captures=capturing.answers,
        memory=host_activity.memory_use(columns),
        counters=counter_rows(columns),
    )
    use = hardware_use(found.counters, seen_device(columns), kernel_times(found)) if found.counters else None
    return replace(found, hardware=use) if use else found


def _device(
    columns: Columns, number: int, links: Links, operators: Column, capturing: Capturing, *, alone: bool
) -> DeviceTrace:
    which: Which = slice(None) if alone else np.flatnonzero(columns.device.device == number)
    device = rows(columns.device, which)
    operator = operators[which]
    time = device.end - device.start
    is_kernel, is_copy = device.kind == Kind.KERNEL, device.kind == Kind.COPY
    replayed = links.in_graph[which] & is_kernel
    covered = cover(device.start, device.end)
    gaps = judge_gaps(columns, device, which, links, covered)
    return DeviceTrace(
        device=str(number),
        kernel_count=int(is_kernel.sum()),
        kernel_time_ns=int(time[is_kernel].sum()),
        span_ns=covered.span,
        busy_ns=covered.busy,
        idle_ns=covered.span - covered.busy,
        copy_count=int(is_copy.sum()),
        copy_bytes=int(np.maximum(device.bytes[is_copy], 0).sum()),
        graph_launches=_graph_launches(columns, device.correlation, links, alone=alone),
        graph_kernel_count=int(replayed.sum()),
        graph_kernel_time_ns=int(time[replayed].sum()),
        skipped_events=columns.skipped,
        model=_model(columns, number),
        compute_units=_fact(columns, number, "compute_units"),
        waves_per_unit=_fact(columns, number, "waves_per_unit"),
        stream_count=len(distinct(device.stream)),
        set_count=int((device.kind == Kind.SET).sum()),
        categories=kernels.category_times(columns, device),
        kernels=kernels.kernel_rows(columns, device, links.in_graph[which], operator),
        idle=idle_times(gaps, capturing),
        gaps=largest_gaps(columns, device, gaps, links, operator),
        copies=kernels.copy_rows(columns, device),
        graphs=host_activity.graph_rows(columns, device, links.in_graph[which], links),
        launches=host_activity.launch_statistics(columns, device, which, links),
        operators=kernels.operator_rows(columns, device, operator),
        collectives=host_activity.collective_time(columns, device),
    )


def _graph_launches(columns: Columns, correlation: Column, links: Links, *, alone: bool) -> int:
    """All of a file with one device; otherwise those that brought work to this one."""
    if alone:
        return len(links.graph_calls)
    return int(np.isin(columns.calls.correlation[links.graph_calls], correlation).sum())


def clock_jumps(columns: Columns) -> tuple[str, ...]:
    """A gap that is nearly all of the trace, and long: somebody set a clock, or two runs share a file."""
    found = []
    for number in distinct(columns.device.device):
        mine = columns.device.device == number
        covered = cover(columns.device.start[mine], columns.device.end[mine])
        lengths = covered.gap_end - covered.gap_start
        longest = int(lengths.max(initial=0))
        if longest > _JUMP_NS and longest > 0.9 * covered.span:
            found.append(
                f"the clock of device {number} jumps by {longest / 1e9:.0f} s: one gap is nearly the whole trace"
            )
    return tuple(found)


_JUMP_NS = 60 * 10**9


def _rank(columns: Columns) -> int | None:
    info = columns.metadata.get("distributedInfo")
    value = info.get("rank") if isinstance(info, dict) else None
    return value if isinstance(value, int) else None


def _platform(columns: Columns) -> str:
    """By the names of the calls, since ROCm writes its own under CUDA's categories."""
    called = [columns.names[n] for n in distinct(columns.calls.name)]
    if columns.producer.startswith("rocp") or any(name.startswith("hip") for name in called):
        return "rocm"
    if any(name.startswith("cu") for name in called):
        return "cuda"
    return "rocm" if any(key.startswith(("hip_", "roctracer")) for key in columns.metadata) else ""


def _listed(columns: Columns) -> list[dict[str, Any]]:
    listed = columns.metadata.get("deviceProperties")
    return [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []


def _fact(columns: Columns, number: int, name: str) -> int:
    values = [e.get(name) for e in _listed(columns) if e.get("id") == number]
    return values[0] if values and isinstance(values[0], int) else 0


def _model(columns: Columns, number: int) -> str:
    """The device's name; where its id is not listed, the name that all listed ones share."""
    entries = _listed(columns)
    by_id = {e.get("id"): str(e.get("name") or "") for e in entries}
    names = {name for name in by_id.values() if name}
    return by_id.get(number) or (names.pop() if len(names) == 1 else "")
