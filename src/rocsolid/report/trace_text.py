"""Trace reports and comparisons as text for a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rocsolid.catalog.counters import HARDWARE_COUNTERS
from rocsolid.model.finding import Severity
from rocsolid.model.trace import (
    CaptureMatch,
    Category,
    CompileLogMatch,
    CpuTrace,
    DeviceTrace,
    GraphCaptures,
    HardwareUtilization,
    KernelChange,
    KernelChangeKind,
    KernelRow,
    KernelUtilization,
    MatchLevel,
    MetricChange,
    OperatorChange,
    OperatorRow,
    Ranks,
    TraceComparison,
    TraceFile,
    TraceReport,
)
from rocsolid.report.probe_text import finding_text, summary_line
from rocsolid.report.terminal import Terminal
from rocsolid.report.units import percent, short_name, size, time

_MAX_ROWS: Final = 12
_SIMILAR_COUNTS: Final = 2  # one count at most so many times the other
_MAX_UNKNOWN_SHARE: Final = 0.02  # of the device time
_PRODUCERS: Final = {"kineto": "torch.profiler", "rocpd": "rocprofv3 (rocpd)"}


def trace_text(report: TraceReport, terminal: Terminal, *, verbose: bool = False) -> str:
    """Return the report as text: all files, then the findings."""
    blocks = [block for file in report.files for block in _file(file, terminal, verbose=verbose)]
    if report.ranks and report.ranks.rows:
        blocks.append(_ranks(report.ranks, terminal))
    shown = [f for f in report.findings if verbose or f.severity > Severity.INFO]
    notes = [f for f in report.findings if f not in shown]
    blocks += [finding_text(finding, terminal) for finding in shown]
    if notes:
        blocks.append(
            "\n".join(terminal.wrap(f"{f.code} {f.message}. {f.why}", indent="  ", first="note  ") for f in notes)
        )
    blocks.append(summary_line(report.findings, terminal, hidden=0))
    return "\n\n".join(blocks) + "\n"


def _file(file: TraceFile, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    rank = f" · rank {file.rank}" if file.rank is not None else ""
    lines = [
        terminal.paint(f"{file.file} · {_PRODUCERS.get(file.producer, file.producer)}{rank}", "bold"),
        terminal.paint(event_counts_text(file), "dim"),
    ]
    lines += [terminal.paint(terminal.wrap(f"counters from {name}"), "dim") for name in file.counter_files]
    lines += [terminal.paint(terminal.wrap(f"damaged: {text}"), "yellow") for text in file.damage]
    lines += [terminal.wrap(capture_match_text(file.capture))] if file.capture else []
    captured = captures_text(file.captures)
    lines += [terminal.wrap(captured)] if captured else []
    if not file.devices:
        lines.append(terminal.wrap(cpu_text(file)))
    yield "\n".join(lines)
    if file.cpu:
        yield _cpu_operators(file, file.cpu, terminal, rows=_MAX_ROWS * 4 if verbose else _MAX_ROWS)
    for device in file.devices:
        yield from _device(device, terminal, rows=_MAX_ROWS * 4 if verbose else _MAX_ROWS)
    yield from _host(file, terminal, verbose=verbose)


def event_counts_text(file: TraceFile) -> str:
    """Return how many events were read, not used, and skipped."""
    unused = sum(file.unused_events.values())
    return f"{_plural(file.events, 'event')}: {unused:,} not used, {file.skipped_events:,} broken and skipped"


def cpu_text(file: TraceFile) -> str:
    """Return what the report of a trace without GPU work is about."""
    cpu = file.cpu
    if not cpu:
        return "no GPU work and no operators in this trace: record it with torch.profiler or rocsolid profile"
    threads = _plural(cpu.thread_count, "thread")
    return (
        f"no GPU work in this trace: this is the time by operator on the CPU. Operators ran in {time(cpu.busy_ns)} of "
        f"{time(cpu.span_ns)} ({percent(cpu.busy_ns, cpu.span_ns)}) on {threads}; the rest is Python, or waiting"
    )


def _cpu_operators(file: TraceFile, cpu: CpuTrace, terminal: Terminal, *, rows: int) -> str:
    """Return the operators on the CPU, the most own time first; per step where the trace has steps."""
    steps = len(file.steps) or 1
    total = sum(row.own_ns for row in cpu.operators)
    allocated = any(row.allocations for row in cpu.operators)
    width = max(20, terminal.width - (64 if allocated else 52))
    cells = [
        (
            short_name(r.name, width),
            time(r.own_ns / steps),
            percent(r.own_ns, total),
            f"{r.calls / steps:,.4g}",
            time(r.own_ns / r.calls),
            *([size(round(r.allocated_bytes / steps)) if r.allocations else ""] if allocated else []),
        )
        for r in cpu.operators[:rows]
    ]
    title = f"CPU operators ({_plural(len(cpu.operators), 'name')}" + ("; per step)" if file.steps else ")")
    headings = ("", "own time", "share", "calls", "per call", *(["allocated"] if allocated else []))
    return _table(terminal, title, headings, cells)


def _device(device: DeviceTrace, terminal: Terminal, *, rows: int) -> Iterator[str]:
    yield _metrics(device, terminal)
    total = sum(row.time_ns for row in device.categories)
    categories = [
        (r.category.value, time(r.time_ns), percent(r.time_ns, total), f"{r.count:,}") for r in device.categories
    ]
    yield _table(terminal, "device time by category", ("", "time", "share", "events"), categories)
    idle = [
        (r.cause.value, time(r.time_ns), percent(r.time_ns, device.span_ns), f"{r.gap_count:,}") for r in device.idle
    ]
    if idle:
        yield _table(terminal, "idle time by cause (rocsolid explain CAUSE)", ("", "time", "of span", "gaps"), idle)
    if unknown := unknown_text(device):
        yield terminal.paint(terminal.wrap(unknown), "yellow")
    if any(row.name for row in device.operators):
        yield _operators(device, terminal, rows=rows)
    if device.messages:
        yield _messages(device, terminal, rows=rows)
    if device.kernels:
        yield _kernels(device, terminal, rows=rows)
        details = list(_launch_details(device, terminal, rows=min(rows, 6)))
        if details:
            yield "\n".join(details)
    if device.copies:
        yield _copies(device, terminal)
    if device.graphs:
        yield _graphs(device, terminal, rows=rows)


def _operators(device: DeviceTrace, terminal: Terminal, *, rows: int) -> str:
    """Return the operators by shape, with their rates; a question mark where the cost or the peak is unknown."""
    width = max(24, terminal.width - 62)
    cells = [
        (
            short_name(operator_text(r), width),
            time(r.device_ns),
            f"{r.calls:,}" if r.calls else "",
            rate(r.tflops),
            rate(r.gb_per_s),
            percent(r.roofline, 1) if r.roofline is not None else "?",
        )
        for r in device.operators[:rows]
    ]
    headings = ("", "device time", "calls", "TFLOP/s", "GB/s", "of roofline")
    return _table(terminal, f"operators by shape ({roofline_text(device)})", headings, cells)


def unknown_text(device: DeviceTrace) -> str:
    """Return a sentence when more than 2 % of the device time is in kernels of unknown category; otherwise nothing."""
    total = sum(row.time_ns for row in device.categories)
    if device.unknown_ns <= _MAX_UNKNOWN_SHARE * total:
        return ""
    return f"{percent(device.unknown_ns, total)} of the device time is in kernels of unknown category (other)"


def operator_text(row: OperatorRow) -> str:
    """Return the name of an operator with its shapes, or what is known about work without one."""
    name = row.name or f"({row.category.value}, operator unknown)"
    name += f" ({row.category.value})" if row.name and not row.shape else ""
    graph = " in graphs" if row.in_graph else ""
    return f"{name}{graph} {row.shape} {row.element_type}".strip() if row.shape else f"{name}{graph}"


def rate(value: float | None) -> str:
    """Return a rate with three digits; a question mark when it is unknown."""
    return "?" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def roofline_text(device: DeviceTrace) -> str:
    """Return which peaks the roofline is computed with."""
    peaks = device.peaks
    if peaks is None:
        return "the peaks of this GPU are unknown"
    bf16 = f", {peaks.tflops['bf16']:,.0f} TFLOP/s bf16" if "bf16" in peaks.tflops else ""
    inferred = ", inferred from its size" if peaks.inferred else ""
    return f"peaks of {peaks.chip}{inferred}: {peaks.memory_gb_per_s:,.0f} GB/s{bf16}"


def _messages(device: DeviceTrace, terminal: Terminal, *, rows: int) -> str:
    cells = [
        (
            f"{r.name}, {r.ranks} ranks",
            f"{r.count:,}",
            size(r.bytes),
            time(r.time_ns),
            time(r.exposed_ns),
            time(r.longest_ns - r.shortest_ns),
            rate(r.bus_gb_per_s),
        )
        for r in device.messages[:rows]
    ]
    headings = ("", "count", "message", "time", "exposed", "skew", "bus GB/s")
    return _table(terminal, "collectives by message size", headings, cells)


def _kernels(device: DeviceTrace, terminal: Terminal, *, rows: int) -> str:
    width = max(24, terminal.width - 58)
    cells = [
        (
            short_name(r.label or r.name, width),
            time(r.total_ns),
            percent(r.total_ns, device.kernel_time_ns),
            f"{r.count:,}",
            time(r.mean_ns),
            time(r.p50_ns),
            time(r.p99_ns),
        )
        for r in device.kernels[:rows]
    ]
    title = f"kernels ({_plural(len(device.kernels), 'name')})"
    return _table(terminal, title, ("", "total", "share", "count", "mean", "p50", "p99"), cells)


def _copies(device: DeviceTrace, terminal: Terminal) -> str:
    cells = [
        (
            f"{r.direction} {r.memory}".strip(),
            f"{r.count:,}",
            size(r.bytes) if r.unknown_size_count < r.count else "?",
            time(r.time_ns),
            f"{r.gb_per_s:.2f}" if r.bytes else "?",
        )
        for r in device.copies
    ]
    return _table(terminal, "copies", ("", "count", "bytes", "time", "GB/s"), cells)


def _graphs(device: DeviceTrace, terminal: Terminal, *, rows: int) -> str:
    width = max(24, terminal.width - 60)
    cells = [
        (
            short_name(r.first_kernel, width),
            f"{r.launches:,}",
            f"{r.kernels_each:,}",
            time(r.kernel_time_ns),
            time(r.launch_mean_ns),
        )
        for r in device.graphs[:rows]
    ]
    headings = ("first kernel", "replays", "kernels each", "kernel time", "launch call")
    return _table(terminal, "graph replays", headings, cells)


def _metrics(device: DeviceTrace, terminal: Terminal) -> str:
    head = f"device {device.device}" + (f" · {device.model}" if device.model else "")
    pairs = list(metrics(device))
    width = max(len(label) for label, _ in pairs)
    lines = []
    for label, text in pairs:
        wrapped = terminal.wrap(text, indent=" " * (width + 4), first=f"  {label:<{width}}  ")
        lines.append(wrapped.replace(label, terminal.paint(label, "dim"), 1))
    return "\n".join([terminal.paint(head, "bold"), *lines])


def metrics(device: DeviceTrace) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each metric of a device, for text and HTML."""
    span = device.span_ns
    yield "span", time(span)
    yield "busy", f"{time(device.busy_ns)} ({percent(device.busy_ns, span)})"
    yield "idle", f"{time(device.idle_ns)} ({percent(device.idle_ns, span)})"
    streams = _plural(device.stream_count, "stream")
    yield "kernels", f"{device.kernel_count:,} in {time(device.kernel_time_ns)} on {streams}"
    yield "copies", f"{device.copy_count:,} with {size(device.copy_bytes)}; {_plural(device.memset_count, 'memset')}"
    launches = device.launches
    if not launches.calls:
        yield "host", "no runtime calls in the file, so launches, graph replays and syncs are unknown"
        return
    share = percent(device.graph_kernel_time_ns, device.kernel_time_ns)
    yield (
        "graph replays",
        f"{device.graph_launches:,} with {_plural(device.graph_kernel_count, 'kernel')}, {share} of kernel time",
    )
    if launches.launch_count:
        median = f"median host time {time(launches.call_p50_ns)}, median latency {time(launches.latency_p50_ns)}"
        verb = "is" if launches.short_kernel_count == 1 else "are"
        short = f"{_plural(launches.short_kernel_count, 'kernel')} {verb} shorter than the launch call"
        details = f"{median}; {short}" if launches.call_p50_ns else "all of them graph launches"
        yield "launches", f"{launches.launch_count:,}; {details}"
    yield "syncs", f"{_plural(launches.sync_count, 'synchronisation')}, {time(launches.sync_time_ns)} on the host"
    if launches.unlinked_count:
        yield "no launch", f"{launches.unlinked_count:,} kernels and copies whose launch is not in the trace"
    collectives = device.collectives
    if collectives.count:
        exposed = f"{time(collectives.exposed_ns)} exposed (no other work at that time)"
        yield "collectives", f"{collectives.count:,} in {time(collectives.time_ns)}, {exposed}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _launch_details(device: DeviceTrace, terminal: Terminal, *, rows: int) -> Iterator[str]:
    """Yield the operator, Python line and launch configuration of each of the kernels with the most time."""
    for row in device.kernels[:rows]:
        details = [
            f"launched by {row.operator}" if row.operator else "",
            f"at {row.location}" if row.location else "",
            rates_text(row),
            row.launch_config,
            f"{row.graph_count:,} of {row.count:,} in graph replays" if row.graph_count else "",
        ]
        text = "; ".join(filter(None, details))
        if text:
            yield terminal.wrap(
                terminal.paint(text, "dim"), indent="      ", first=f"  {short_name(row.label or row.name, 40)}: "
            )


def rates_text(row: KernelRow) -> str:
    """Return the rates of a kernel; empty when its cost is unknown."""
    parts = [
        f"{rate(row.tflops)} TFLOP/s" if row.tflops else "",
        f"{rate(row.gb_per_s)} GB/s" if row.gb_per_s else "",
        f"{percent(row.roofline, 1)} of roofline" if row.roofline else "",
    ]
    return ", ".join(filter(None, parts))


def _host(file: TraceFile, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    rows = _MAX_ROWS * 4 if verbose else 6
    if file.steps:
        shown = [(r.name, time(r.total_ns)) for r in file.steps[:rows]]
        hidden = len(file.steps) - len(shown)
        yield _table(terminal, "steps", ("", "time"), [*shown, *([(f"{hidden} more", "")] if hidden else [])])
    if file.regions:
        yield _table(
            terminal,
            "annotations and compiled regions (host time)",
            ("", "count", "total", "p50", "longest"),
            [
                (short_name(r.name, 60), f"{r.count:,}", time(r.total_ns), time(r.p50_ns), time(r.longest_ns))
                for r in file.regions[:rows]
            ],
        )
    if file.modules:
        yield _table(
            terminal,
            f"{time_kind(cpu=file.cpu is not None)} by module",
            ("", "calls", "own", "with inner modules"),
            [
                (short_name(r.name, 60), f"{r.calls:,}", time(r.own_ns), time(r.device_ns))
                for r in file.modules[: rows * 2]
            ],
        )
    if file.graph_breaks:
        yield f"{file.graph_breaks + 1} compiled regions; {file.graph_breaks} of them exist only because of a graph break or a recompile"
    if file.compile_log:
        yield "\n".join(_compile_log(file, file.compile_log, terminal))
    if file.hardware:
        yield _hardware(file.hardware, terminal, rows=rows * 2)
    counters = [r for r in file.counters if verbose or r.counter not in HARDWARE_COUNTERS]
    if counters:
        yield _table(
            terminal,
            "hardware counters",
            ("", "counter", "dispatches", "mean"),
            [(short_name(r.kernel, 50), r.counter, f"{r.count:,}", f"{r.mean:,.1f}") for r in counters[: rows * 4]],
        )
    for curve in file.memory:
        yield f"memory of device {curve.device}: peak {size(curve.peak_bytes)}"


def capture_match_text(match: CaptureMatch) -> str:
    """Return how many kernels of graph replays have their operator from a trace of the capture."""
    share = f"{match.kernels_with_operator:,} of {match.kernels:,} kernels in graph replays"
    captured = f"{match.graphs} captured graph{'' if match.graphs == 1 else 's'}, {match.launches:,} launches"
    return f"{share} have their operator from {match.file} ({captured})"


def captures_text(captures: GraphCaptures) -> str:
    """Return a sentence about the graphs captured during the trace; empty when there were none."""
    if not captures.count:
        return ""
    graphs = "a graph was" if captures.count == 1 else f"{captures.count} graphs were"
    recorded = f"{captures.recorded_launches:,} of {captures.launches:,} kernel launches were recorded instead of run"
    return f"{graphs} captured during this trace ({time(captures.time_ns)} of host time); {recorded}"


def _compile_log(file: TraceFile, match: CompileLogMatch, terminal: Terminal) -> Iterator[str]:
    """Yield the function and line of each compiled region."""
    yield terminal.paint(f"compiled regions by source line, from {match.source}", "bold")
    for region in file.regions:
        if region.function:
            text = f"{region.function} at {region.location}" + (f"; {region.reason}" if region.reason else "")
            first = f"  {short_name(region.name, 40)}  {time(region.total_ns)}  "
            yield terminal.wrap(text, indent="      ", first=first)
    for text in compile_log_notes(match):
        yield terminal.paint(terminal.wrap(text, indent="  "), "dim")


def compile_log_notes(match: CompileLogMatch) -> Iterator[str]:
    """Yield what is in the trace but not in the log, and what is in the log but not in the trace."""
    unmatched = match.unmatched_regions
    if unmatched and not match.matched_regions:
        yield "the log is from another run: it contains none of the compiled regions of this trace"
    elif unmatched:
        yield f"{_plural(len(unmatched), 'compiled region')} not in the log: {', '.join(unmatched[:5])}"
    elif not match.matched_regions:
        yield "the trace has no compiled regions"
    if match.other_breaks:
        yield f"{_plural(match.other_breaks, 'more graph break')} in functions that do not run in this trace"


def _hardware(use: HardwareUtilization, terminal: Terminal, *, rows: int) -> str:
    width = max(24, terminal.width - 74)
    cells = [(short_name(u.kernel, width), *utilization_cells(u)) for u in use.kernels[:rows]]
    title = "GPU utilization by kernel, from hardware counters"
    known = any(value is not None for u in use.kernels for value in (u.occupancy, u.l2_hit_rate, u.bytes))
    table = _table(terminal, title, UTILIZATION_HEADINGS, cells) if known else terminal.paint(title, "bold")
    notes = [peak_text(use) if known else "", *use.unknown]
    return "\n".join([table, *(terminal.paint(terminal.wrap(text, indent="  "), "dim") for text in notes if text)])


UTILIZATION_HEADINGS: Final = ("", "dispatches", "mean", "occupancy", "L2 hits", "moved", "GB/s", "of peak")


def utilization_cells(use: KernelUtilization) -> tuple[str, ...]:
    """Return the values of a kernel, with a question mark for those that are not known."""
    return (
        f"{use.dispatches:,}",
        "?" if use.time_ns is None else time(use.time_ns),
        _share(use.occupancy),
        _share(use.l2_hit_rate),
        "?" if use.bytes is None else size(use.bytes),
        "?" if use.gb_per_s is None else f"{use.gb_per_s:,.0f}",
        _share(use.peak_fraction),
    )


def _share(value: float | None) -> str:
    return "?" if value is None else percent(value, 1)


def peak_text(use: HardwareUtilization) -> str:
    """Return the peak values of the GPU, to which the table refers."""
    parts = [
        f"{use.peak_gb_per_s:,.1f} GB/s memory bandwidth" if use.peak_gb_per_s else "",
        f"{use.waves_per_unit} wavefronts per compute unit" if use.waves_per_unit else "",
    ]
    text = ", ".join(filter(None, parts))
    return f"peak of {use.chip}: {text}" if text and use.chip else ""


def _ranks(ranks: Ranks, terminal: Terminal) -> str:
    rows = [
        (
            f"rank {r.rank}",
            time(r.compute_ns),
            time(r.communication_ns),
            time(r.exposed_ns),
            time(r.idle_ns),
            time(r.span_ns),
        )
        for r in ranks.rows
    ]
    return _table(terminal, "ranks", ("", "compute", "communication", "exposed", "idle", "span"), rows)


def comparison_text(comparison: TraceComparison, terminal: Terminal, *, verbose: bool = False) -> str:
    """Return metrics, categories, idle time and kernels before and after, as text."""
    models = [m or "unknown device" for m in (comparison.before_model, comparison.after_model)]
    head = "\n".join(
        f"{label}  {name} · {model}"
        for label, name, model in zip(("before", "after "), (comparison.before, comparison.after), models, strict=True)
    )
    tables = [
        _table(terminal, title, ("", "before", "after", "change"), [_metric_change(row) for row in rows])
        for title, rows in (
            ("summary", comparison.metrics),
            ("device time by category", comparison.categories),
            (f"own {time_kind(cpu=comparison.cpu)} by module", comparison.modules),
            ("steps (host time)", comparison.steps if verbose else comparison.steps[:_MAX_ROWS]),
            ("idle time by cause", comparison.idle),
        )
        if rows
    ]
    operators = _operator_changes(comparison, terminal, rows=None if verbose else 2 * _MAX_ROWS)
    tables[1:1] = operators
    verdict = [terminal.wrap(line) for line in comparison_verdict(comparison)]
    if comparison.cpu:
        return "\n\n".join([terminal.paint(head, "bold"), *verdict, *tables]) + "\n"
    shown = comparison.kernels if verbose else comparison.kernels[: 2 * _MAX_ROWS]
    counts = [f"{sum(row.change is kind for row in comparison.kernels)} {kind.value}" for kind in KernelChangeKind]
    kernels = [_kernel_change(row, comparison.labels, max(45, terminal.width - 62)) for row in shown]
    tables.append(
        _table(terminal, f"kernels: {', '.join(counts)}", ("", "", "operator", "before", "after", "change"), kernels)
    )
    return "\n\n".join([terminal.paint(head, "bold"), *verdict, *tables]) + "\n"


def comparison_verdict(comparison: TraceComparison) -> Iterator[str]:
    """Yield where the second trace loses and gains device time, and how the work was matched."""
    rows, per_step = compared_operators(comparison)
    if not rows:
        return
    if per_step:
        counts = f"{comparison.before_steps} and {comparison.after_steps}"
        yield f"the traces have {counts} steps, so operators are compared by their time per step"
    before, after = sum(row.before for row in rows), sum(row.after for row in rows)
    kind = time_kind(cpu=comparison.cpu)
    yield f"{kind}{per_step}: {time(before)} before, {time(after)} after, {_signed(after - before)}"
    for label, sign in (("loses", 1), ("gains", -1)):
        changed = [row for row in rows if sign * (row.after - row.before) > 0][:4]
        if changed:
            parts = ", ".join(f"{row.name} {_signed(row.after - row.before)}" for row in changed)
            yield f"{label}: {parts}"
    yield from _fused_attention(comparison)
    if not comparison.cpu:
        yield _matched(comparison.operators)
    yield from (f"uncertain: {doubt}" for doubt in comparison.doubts)


def compared_operators(comparison: TraceComparison) -> tuple[tuple[MetricChange, ...], str]:
    """Return the times by operator, and " per step" if they are divided by different numbers of steps."""
    steps = comparison.before_steps, comparison.after_steps
    if steps[0] == steps[1] or not all(steps):
        return comparison.by_operator, ""
    rows = [
        MetricChange(name=row.name, before=round(row.before / steps[0]), after=round(row.after / steps[1]))
        for row in comparison.by_operator
    ]
    return tuple(sorted(rows, key=lambda row: -abs(row.after - row.before))), " per step"


def _fused_attention(comparison: TraceComparison) -> Iterator[str]:
    """Yield the time to compare if one trace has far more kernels for attention: the other computes it in several kernels."""
    rows = [row for row in comparison.operators if row.category is Category.ATTENTION]
    counts = sum(row.before_count for row in rows), sum(row.after_count for row in rows)
    if max(counts) <= _SIMILAR_COUNTS * min(counts):
        return
    together = [
        row
        for row in comparison.categories
        if row.name in (Category.ATTENTION.value, Category.GEMM.value, Category.REDUCTION.value)
    ]
    before, after = sum(row.before for row in together), sum(row.after for row in together)
    yield (
        f"attention: {counts[0]} fused kernels before, {counts[1]} after; where it is not fused, matrix products and "
        f"softmax compute it. So compare {', '.join(row.name for row in together)} together: "
        f"{time(before)} before, {time(after)} after, {_signed(after - before)}"
    )


def _matched(rows: Sequence[OperatorChange]) -> str:
    total = max(sum(row.before_ns + row.after_ns for row in rows), 1)
    shares = [
        f"{percent(sum(r.before_ns + r.after_ns for r in rows if r.match is level), total)} by {level.value}"
        for level in MatchLevel
        if level is not MatchLevel.NONE
    ]
    left = [
        time(sum(getattr(r, f"{side}_ns") for r in rows if r.match is MatchLevel.NONE)) for side in ("before", "after")
    ]
    return f"matched: {', '.join(shares)}; unmatched: {left[0]} before, {left[1]} after"


def time_kind(*, cpu: bool) -> str:
    """Return which time a report is about."""
    return "CPU time" if cpu else "device time"


def _operator_changes(comparison: TraceComparison, terminal: Terminal, *, rows: int | None) -> list[str]:
    if not comparison.operators:
        return []
    changes, per_step = compared_operators(comparison)
    totals = [
        (short_name(r.name, 50), time(r.before), time(r.after), _signed(r.after - r.before)) for r in changes[:rows]
    ]
    by_operator = _table(
        terminal, f"{time_kind(cpu=comparison.cpu)} by operator{per_step}", ("", "before", "after", "change"), totals
    )
    if comparison.cpu:
        return [by_operator]
    width = max(45, terminal.width - 64)
    shapes = [
        (
            _change_label(r, comparison.labels, width),
            r.match.value,
            f"{r.before_count:,}× {time(r.before_ns)}",
            f"{r.after_count:,}× {time(r.after_ns)}",
            _signed(r.delta_ns),
        )
        for r in comparison.operators[:rows]
    ]
    return [
        by_operator,
        _table(terminal, "device time by operator and shape", ("", "matched by", "before", "after", "change"), shapes),
    ]


def _change_label(row: OperatorChange, labels: Mapping[str, str], width: int) -> str:
    """Return the operator and its shapes; for work that is matched by order, the kernel before and after."""
    if row.match is MatchLevel.ORDER:
        return _two_kernels(row.before_kernel, row.after_kernel, labels, width)
    about = row.shape or (f"({row.category.value})" if row.operator else "")
    return short_name(f"{row.operator or row.category.value} {about}".strip(), width)


def _two_kernels(before: str, after: str, labels: Mapping[str, str], width: int) -> str:
    """Return the names of one kernel, or of a kernel and the one that replaced it."""
    if before == after or not (before and after):
        return short_name(_label(after or before, labels), width)
    return " → ".join(short_name(_label(name, labels), (width - 3) // 2) for name in (before, after))


def _label(name: str, labels: Mapping[str, str]) -> str:
    """Return the short name of a kernel. The tile of a Tensile kernel says more than the layout in front of it."""
    label = labels.get(name, name)
    tile = label.find(" MT")
    return f"Tensile{label[tile:]}" if label.startswith("Tensile ") and tile > 0 else label


def _signed(ns: int) -> str:
    return ("+" if ns > 0 else "") + time(ns)


def _metric_change(row: MetricChange) -> tuple[str, str, str, str]:
    """Return the cells of a row. The end of the name decides the unit; categories and causes are times."""
    show = size if row.name.endswith("bytes") else str if row.name.endswith(("count", "launches")) else time
    change = f"{100 * (row.after - row.before) / row.before:+.1f} %" if row.before else "new"
    label = row.name.removesuffix("_ns").replace("_", " ")
    return label, show(row.before), show(row.after), change if row.before or row.after else ""


def _kernel_change(row: KernelChange, labels: Mapping[str, str], width: int) -> tuple[str, ...]:
    return (
        _two_kernels(row.before, row.after, labels, width),
        row.change.value,
        short_name(row.operator, 20),
        f"{row.before_count}× {time(row.before_ns)}" if row.before else "–",
        f"{row.after_count}× {time(row.after_ns)}" if row.after else "–",
        ("+" if row.delta_ns > 0 else "") + time(row.delta_ns),
    )


def _table(terminal: Terminal, title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    text = [
        f"  {line[0]:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in lines
    ]
    return "\n".join([terminal.paint(title, "bold"), terminal.paint(text[0], "dim"), *text[1:]])
