"""Trace reports as one self-contained HTML page, with a timeline and a flame graph when they were built."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10, sqrt
from typing import Final

from rocsolid.model.trace import (
    Category,
    DeviceTrace,
    Gap,
    HardwareUtilization,
    KernelRow,
    MemoryCurve,
    Ranks,
    TraceFile,
    TraceReport,
)
from rocsolid.model.trace_view import Timeline
from rocsolid.report.flame_page import flame_html, keys_help
from rocsolid.report.html import Attribute, Html, Node, join, json_data, tag
from rocsolid.report.html_page import definitions, findings_html, legend, page
from rocsolid.report.sortable_table import Cell, counts, share, sizes, sortable, times
from rocsolid.report.trace_text import (
    UTILIZATION_HEADINGS,
    capture_match_text,
    captures_text,
    compile_log_notes,
    cpu_text,
    event_counts_text,
    metrics,
    peak_text,
    rate,
    roofline_text,
    time_kind,
    unknown_text,
    utilization_cells,
)
from rocsolid.report.units import percent, plain_name, size, time

_KEYS_HELP: Final = (
    ("←", " "),
    ("→", " move, "),
    ("↑", " "),
    ("↓", " zoom, "),
    ("0", " show all, "),
    ("/", " search, "),
    ("n", " "),
    ("p", " next and previous match, wheel to zoom, drag to move, "),
    ("shift", " + drag to add up a range, click for details and the launch"),
)
_MIN_PLOTTED_SHARE: Final = 0.001  # of the kernel time
_CARD_METRICS: Final = ("span", "busy", "idle")


def trace_html(report: TraceReport, timelines: Mapping[str, Timeline] | None = None) -> str:
    """Return the page: the findings, then for each file the timeline, the metrics and the tables."""
    parts: list[Node] = [tag("h2", "Findings"), findings_html(report.findings)]
    parts += [_ranks(report.ranks)] if report.ranks and report.ranks.rows else []
    for number, file in enumerate(report.files):
        timeline = (timelines or {}).get(file.file)
        parts.append(_file(file, number, timeline if number == 0 else None))
    scripts = ["trace.js"] if timelines else []
    scripts += ["flame.js"] if any(timeline.flame for timeline in (timelines or {}).values()) else []
    subtitle = " · ".join(file.file for file in report.files)
    return page("Where the time goes", subtitle, *parts, styles=("trace.css",), scripts=scripts)


def _ranks(ranks: Ranks) -> Html:
    headings = ["rank", "compute", "communication", "exposed", "idle", "span"]
    rows = [
        (f"rank {r.rank}", *times(r.compute_ns, r.communication_ns, r.exposed_ns, r.idle_ns, r.span_ns))
        for r in ranks.rows
    ]
    return join(tag("h2", "Ranks"), sortable("ranks", headings, rows))


def _file(file: TraceFile, number: int, timeline: Timeline | None) -> Html:
    rank = f" · rank {file.rank}" if file.rank is not None else ""
    parts: list[Node] = [
        tag("h2", file.file, tag("span", rank, class_="faint")),
        tag("p", event_counts_text(file), class_="faint"),
    ]
    captured = captures_text(file.captures)
    parts += [tag("p", captured)] if captured else []
    parts += [tag("p", capture_match_text(file.capture))] if file.capture else []
    parts += [tag("p", text, class_="warning") for text in file.damage]
    parts += [_timeline(timeline)] if timeline else []
    parts += [flame_html(timeline.flame)] if timeline and timeline.flame else []
    if timeline and not timeline.flame and file.unused_events.get("python_function"):
        parts.append(
            tag("p", "With --stacks, this page also has a flame graph of the Python functions.", class_="faint")
        )
    busiest = max(file.devices, key=lambda device: device.kernel_time_ns, default=None)
    hardware = _hardware(file.hardware, number) if file.hardware else None
    for device in file.devices:
        offset = timeline.device_start_ns.get(device.device, 0) if timeline else 0
        use = hardware if device is busiest else None
        parts.append(_device(device, f"{number}-{device.device}", offset, use, has_timeline=timeline is not None))
    parts += [] if file.devices else [_cpu(file, number)]
    parts += [hardware] if busiest is None else []
    parts += [_memory(curve) for curve in file.memory]
    parts.append(_modules(file, number))
    parts.append(_host(file, number))
    return join(*parts)


def _timeline(timeline: Timeline) -> Html:
    data = {
        "span": timeline.span_ns,
        "unit": timeline.unit_ns,
        "names": timeline.names,
        "categories": timeline.categories,
        "labels": timeline.labels,
        "details": timeline.details,
        "lanes": [vars(lane) for lane in timeline.lanes],
    }
    dropped = f"All device events are drawn; {timeline.dropped_events:,} of the shortest host events are not."
    zoom_buttons = [
        tag("button", label, type="button", data_zoom=zoom)
        for zoom, label in (("in", "zoom in"), ("out", "zoom out"), ("all", "show all"))
    ]
    label = "timeline of the trace; arrow keys move and zoom"
    return join(
        tag("h3", "Timeline"),
        tag(
            "div",
            tag("input", type="search", id="timeline-search", placeholder="search events", aria_label="search events"),
            tag("output", id="timeline-found", class_="faint"),
            zoom_buttons,
            class_="tools",
        ),
        tag(
            "div",
            tag("canvas", tabindex="0", role="application", aria_label=label),
            tag("div", class_="tip", hidden=True),
            class_="timeline",
            id="timeline",
        ),
        tag("pre", class_="detail", id="timeline-detail", aria_live="polite"),
        legend((c.value, f"var(--c-{c.value})") for c in Category),
        keys_help(_KEYS_HELP),
        tag("p", dropped, class_="faint") if timeline.dropped_events else None,
        json_data("timeline-about", data),
        json_data("timeline-data", timeline.data),
    )


def _device(device: DeviceTrace, key: str, offset: int, hardware: Html | None, *, has_timeline: bool) -> Html:
    total = sum(row.time_ns for row in device.categories)
    categories = [
        (r.category.value, *times(r.time_ns), share(r.time_ns, total), *counts(r.count)) for r in device.categories
    ]
    idle = [
        (r.cause.value, *times(r.time_ns), share(r.time_ns, device.span_ns), *counts(r.gap_count)) for r in device.idle
    ]
    category_table = sortable(f"categories-{key}", ["category", "time", "share", "events"], categories)
    idle_table = sortable(f"idle-{key}", ["cause", "time", "of span", "gaps"], idle)
    hint = tag("span", " click one to show it in the timeline", class_="faint") if has_timeline else None
    return join(
        tag("h3", f"Device {device.device} ", tag("span", device.model, class_="faint")),
        _metrics(device),
        tag(
            "div",
            tag("div", tag("h3", "Device time by category"), category_table),
            tag("div", tag("h3", "Idle time by cause"), idle_table),
            class_="pair",
        ),
        tag("p", unknown, class_="warning") if (unknown := unknown_text(device)) else None,
        _operators(device, key),
        tag("h3", "Kernels"),
        _kernels(device.kernels, key, device.kernel_time_ns),
        hardware,
        [tag("h3", "Gaps", hint), _gaps(device.gaps, key, offset)] if device.gaps else None,
        _small_tables(device, key),
    )


def _metrics(device: DeviceTrace) -> Html:
    pairs = dict(metrics(device))
    cards = []
    for label in _CARD_METRICS:
        text, _, more = pairs[label].partition(" (")
        cards.append(tag("li", tag("span", label, class_="faint"), tag("b", text), more.rstrip(")")))
    rest = {label: text for label, text in pairs.items() if label not in _CARD_METRICS}
    return join(tag("ul", cards, class_="figures"), definitions(rest), _bar(device))


def _bar(device: DeviceTrace) -> Html:
    """Return the share of each category as one bar."""
    total = max(sum(row.time_ns for row in device.categories), 1)
    parts, left = [], 0.0
    for row in device.categories:
        width = 100 * row.time_ns / total
        title = tag("title", f"{row.category.value} {percent(row.time_ns, total)}")
        fill = f"var(--c-{row.category.value})"
        parts.append(tag("rect", title, x=f"{left:.3f}%", width=f"{width:.3f}%", height="100%", fill=fill))
        left += width
    return tag("svg", parts, class_="bar")


def _kernels(kernels: Sequence[KernelRow], key: str, total: int) -> Html:
    headings = [
        "kernel",
        "full name",
        "category",
        "operator",
        "total",
        "share",
        "count",
        "mean",
        "p50",
        "p99",
        "TFLOP/s",
        "GB/s",
        "of roofline",
        "in graph replays",
        "launch configuration",
    ]
    rows = [
        (
            r.label or plain_name(r.name).partition("<")[0],
            r.name,
            r.category.value,
            r.operator + (f" at {r.location}" if r.location else ""),
            *times(r.total_ns),
            share(r.total_ns, total),
            *counts(r.count),
            *times(r.mean_ns, r.p50_ns, r.p99_ns),
            *_rates(r.tflops, r.gb_per_s, r.roofline),
            *counts(r.graph_count),
            r.launch_config,
        )
        for r in kernels
    ]
    return sortable(f"kernels-{key}", headings, rows)


def _operators(device: DeviceTrace, key: str) -> Html | None:
    """Return the operators by shape, with their rates, and a plot of them under the roofline."""
    if not device.operators:
        return None
    headings = [
        "operator",
        "inputs",
        "type",
        "category",
        "in graphs",
        "calls",
        "device time",
        "host time",
        "TFLOP/s",
        "GB/s",
        "of roofline",
        "kernel",
    ]
    rows = [
        (
            r.name or "(unknown)",
            r.shape,
            r.element_type,
            r.category.value,
            "yes" if r.in_graph else "",
            *counts(r.calls),
            *times(r.device_ns, r.host_ns),
            *_rates(r.tflops, r.gb_per_s, r.roofline),
            r.kernels[0].name if r.kernels else "",
        )
        for r in device.operators
    ]
    return join(
        tag("h3", "Operators by shape ", tag("span", roofline_text(device), class_="faint")),
        _roofline(device),
        sortable(f"operators-{key}", headings, rows),
        _messages(device, key),
    )


def _rates(tflops: float | None, gb_per_s: float | None, roofline: float | None) -> tuple[Cell, ...]:
    """Return cells for rates; unknown values sort below all others."""
    values = (
        (rate(tflops), tflops),
        (rate(gb_per_s), gb_per_s),
        ("?" if roofline is None else percent(roofline, 1), roofline),
    )
    return tuple((text, -1.0 if value is None else value) for text, value in values)


def _messages(device: DeviceTrace, key: str) -> Html | None:
    if not device.messages:
        return None
    headings = ["collective", "ranks", "count", "message", "time", "exposed", "skew", "bus GB/s"]
    rows = [
        (
            r.name,
            *counts(r.ranks, r.count),
            *sizes(r.bytes),
            *times(r.time_ns, r.exposed_ns, r.longest_ns - r.shortest_ns),
            (rate(r.bus_gb_per_s), r.bus_gb_per_s),
        )
        for r in device.messages
    ]
    return join(tag("h3", "Collectives by message size"), sortable(f"messages-{key}", headings, rows))


def _roofline(device: DeviceTrace) -> Html | None:
    """Return operators as points: operations per byte across, TFLOP/s up, both logarithmic; the area is the time."""
    peaks = device.peaks
    shown = [r for r in device.operators if r.device_ns >= _MIN_PLOTTED_SHARE * device.kernel_time_ns]
    points = [(r, r.flops / r.bytes, r.tflops) for r in shown if r.flops and r.bytes and r.tflops]
    if peaks is None or not points:
        return None
    top = max(peaks.tflops.values(), default=1.0)
    left, right = -1.0, max(3.5, max(log10(x) for _, x, _ in points) + 0.3)
    low, high = min(-1.0, min(log10(y) for _, _, y in points) - 0.2), log10(top) + 0.3

    def place(intensity: float, tflops: float) -> tuple[float, float]:
        across = (min(max(log10(intensity), left), right) - left) / (right - left)
        return 60 + 820 * across, 320 - 300 * (min(max(log10(tflops), low), high) - low) / (high - low)

    roofs: list[Node] = []
    for number, (kind, tflops) in enumerate((k, v) for k, v in peaks.tflops.items() if k in ("bf16", "fp8", "fp32")):
        ridge = tflops * 1000 / peaks.memory_gb_per_s
        start = max(10**left, 10**low * 1000 / peaks.memory_gb_per_s)
        corners = [place(start, start * peaks.memory_gb_per_s / 1000), place(ridge, tflops), place(10**right, tflops)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        roofs.append(
            tag(
                "polyline",
                points=line,
                fill="none",
                stroke="var(--faint)",
                stroke_dasharray="" if number == 0 else "4 3",
            )
        )
        roofs.append(
            tag(
                "text",
                f"{kind} {tflops:,.0f} TFLOP/s",
                x=880,
                y=f"{corners[-1][1] - 4:.1f}",
                text_anchor="end",
                class_="axis",
            )
        )
    total = max(sum(r.device_ns for r, _, _ in points), 1)
    dots = []
    for row, intensity, tflops in points:
        x, y = place(intensity, tflops)
        title = f"{row.name} {row.shape} {row.element_type}: {rate(tflops)} TFLOP/s, {intensity:,.1f} FLOP per byte, {time(row.device_ns)}"
        radius = 3 + 17 * sqrt(row.device_ns / total)
        fill = f"var(--c-{row.category.value})"
        dots.append(
            tag(
                "circle",
                tag("title", title),
                cx=f"{x:.1f}",
                cy=f"{y:.1f}",
                r=f"{radius:.1f}",
                fill=fill,
                fill_opacity="0.65",
            )
        )
    axes = [
        [
            tag(
                "line",
                x1=f"{place(10.0**n, 1)[0]:.1f}",
                x2=f"{place(10.0**n, 1)[0]:.1f}",
                y1="20",
                y2="320",
                stroke="var(--line)",
            ),
            tag("text", f"{10.0**n:g}", x=f"{place(10.0**n, 1)[0]:.1f}", y="336", text_anchor="middle", class_="axis"),
        ]
        for n in range(ceil(left), floor(right) + 1)
    ]
    axes += [
        [
            tag(
                "line",
                x1="60",
                x2="880",
                y1=f"{place(1, 10.0**n)[1]:.1f}",
                y2=f"{place(1, 10.0**n)[1]:.1f}",
                stroke="var(--line)",
            ),
            tag("text", f"{10.0**n:g}", x="54", y=f"{place(1, 10.0**n)[1] + 4:.1f}", text_anchor="end", class_="axis"),
        ]
        for n in range(ceil(low), floor(high) + 1)
    ]
    labels = [
        tag("text", "FLOP per byte", x="470", y="354", text_anchor="middle", class_="axis"),
        tag("text", "TFLOP/s", x="8", y="14", class_="axis"),
    ]
    label = "operators under the roofline; the area of a point is its share of the time"
    return tag("svg", axes, roofs, dots, labels, class_="roofline", viewBox="0 0 900 360", role="img", aria_label=label)


def _cpu(file: TraceFile, number: int) -> Html:
    """Return the operators on the CPU, of a trace without GPU work."""
    cpu = file.cpu
    if not cpu:
        return tag("p", cpu_text(file))
    total = sum(row.own_ns for row in cpu.operators)
    rows = [
        (
            r.name,
            *times(r.own_ns),
            share(r.own_ns, total),
            *counts(r.calls),
            *times(r.own_ns / r.calls, r.total_ns),
            *counts(r.allocations, r.allocated_bytes),
        )
        for r in cpu.operators
    ]
    headings = ["operator", "own time", "share", "calls", "per call", "with inner operators", "allocations", "bytes"]
    return join(tag("h3", "CPU operators"), tag("p", cpu_text(file)), sortable(f"cpu-{number}", headings, rows))


def _modules(file: TraceFile, number: int) -> Html | None:
    if not file.modules:
        return None
    rows = [(r.name, *counts(r.calls), *times(r.own_ns, r.device_ns)) for r in file.modules]
    kind = time_kind(cpu=file.cpu is not None)
    headings = ["module", "calls", f"own {kind}", "with inner modules"]
    return join(tag("h3", f"{kind[0].upper()}{kind[1:]} by module"), sortable(f"modules-{number}", headings, rows))


def _gaps(gaps: Sequence[Gap], key: str, offset: int) -> Html:
    rows = [
        (*times(g.start_ns, g.duration_ns), g.cause.value, g.host_activity, g.launch_call, g.next_work, g.previous_work)
        for g in gaps
    ]
    attributes: list[dict[str, Attribute]] = [
        {
            "class_": "gap",
            "tabindex": "0",
            "data_start": g.start_ns + offset,
            "data_duration": g.duration_ns,
            "data_details": _gap_details(g),
        }
        for g in gaps
    ]
    headings = ["start", "duration", "cause", "host activity", "launched by", "next", "previous"]
    return sortable(f"gaps-{key}", headings, rows, attributes)


def _gap_details(gap: Gap) -> str:
    host = f" Host during the gap: {gap.host_activity}." if gap.host_activity else ""
    launch = f", launched by {gap.launch_call}" if gap.launch_call else ""
    operator = f" in {gap.operator}" if launch and gap.operator else ""
    return f"{time(gap.duration_ns)} idle, cause: {gap.cause.value}. Next: {gap.next_work}{launch}{operator}.{host}"


def _small_tables(device: DeviceTrace, key: str) -> Html:
    copies = [
        (r.direction, r.memory, *counts(r.count), *sizes(r.bytes), *times(r.time_ns), (f"{r.gb_per_s:.2f}", r.gb_per_s))
        for r in device.copies
    ]
    graphs = [
        (r.first_kernel, *counts(r.launches, r.kernels_each), *times(r.kernel_time_ns, r.launch_mean_ns))
        for r in device.graphs
    ]
    calls = [(r.name, *counts(r.count), *times(r.total_ns, r.p50_ns)) for r in device.launches.calls]
    tables = (
        ("Copies", ["direction", "memory", "count", "bytes", "time", "GB/s"], copies),
        ("Graph replays", ["first kernel", "replays", "kernels each", "kernel time", "launch call"], graphs),
        ("Runtime calls", ["call", "count", "total", "p50"], calls),
    )
    shown = [
        tag("div", tag("h3", title), sortable(f"{title.split()[0].lower()}-{key}", headings, rows))
        for title, headings, rows in tables
        if rows
    ]
    return tag("div", shown, class_="pair")


def _host(file: TraceFile, number: int) -> Html | None:
    log = file.compile_log
    rows = [
        (
            r.name,
            *((r.function, r.location, r.reason) if log else ()),
            *counts(r.count),
            *times(r.total_ns, r.p50_ns, r.longest_ns),
        )
        for r in (*file.steps, *file.regions)
    ]
    if not rows:
        return None
    headings = ["name", *(("function", "line", "reason") if log else ()), "count", "total", "p50", "longest"]
    notes = [tag("p", text, class_="faint") for text in (compile_log_notes(log) if log else ())]
    table = sortable(f"regions-{number}", headings, rows)
    return join(tag("h3", "Steps, annotations and compiled regions"), notes, table)


def _hardware(use: HardwareUtilization, number: int) -> Html:
    """Return the table of utilization by kernel. Unknown values sort below all others."""
    fields = ("dispatches", "time_ns", "occupancy", "l2_hit_rate", "bytes", "gb_per_s", "peak_fraction")
    rows: list[list[Cell]] = []
    for kernel in use.kernels:
        values = [getattr(kernel, name) for name in fields]
        cells = [
            (text, -1.0 if v is None else float(v)) for text, v in zip(utilization_cells(kernel), values, strict=True)
        ]
        rows.append([kernel.kernel, *cells])
    notes = [tag("p", text, class_="faint") for text in (peak_text(use), *use.unknown) if text]
    table = sortable(f"hardware-{number}", ["kernel", *UTILIZATION_HEADINGS[1:]], rows)
    source = tag("span", "from hardware counters", class_="faint")
    return join(tag("h3", "GPU utilization by kernel ", source), notes, table)


def _memory(curve: MemoryCurve) -> Html:
    """Return a curve of the allocated memory over time."""
    last, top = max((*curve.times_ns[-1:], 1)), max(curve.peak_bytes, 1)
    points = " ".join(
        f"{1000 * time_ns / last:.1f},{98 - 94 * allocated / top:.1f}"
        for time_ns, allocated in zip(curve.times_ns, curve.allocated_bytes, strict=False)  # a saved file may differ
    )
    label = f"allocated memory of device {curve.device}: peak {size(curve.peak_bytes)}, over {time(last)}"
    line = tag(
        "polyline",
        points=points,
        fill="none",
        stroke="var(--link)",
        stroke_width="1.5",
        vector_effect="non-scaling-stroke",
    )
    view = {"viewBox": "0 0 1000 100", "preserveAspectRatio": "none"}
    return join(tag("h3", label), tag("svg", line, class_="memory", role="img", aria_label=label, **view))
