"""Trace reports as one self-contained HTML page, with a timeline and a flame graph when they were built."""

from collections.abc import Mapping, Sequence
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
    captures_text,
    compile_log_notes,
    event_counts_text,
    metrics,
    peak_text,
    utilization_cells,
)
from rocsolid.report.units import percent, size, time

_KEYS_HELP: Final = (
    ("←", " "),
    ("→", " move, "),
    ("↑", " "),
    ("↓", " zoom, "),
    ("0", " show all, "),
    ("/", " search, "),
    ("n", " "),
    ("p", " next and previous match, wheel to zoom, drag to move, click for details"),
)
_CARD_METRICS: Final = ("span", "busy", "idle")


def trace_html(report: TraceReport, timelines: Mapping[str, Timeline] | None = None) -> str:
    """Return the page: the findings, then for each file the timeline, the metrics and the tables."""
    parts: list[Node] = [tag("h2", "Findings"), findings_html(report.findings)]
    parts += [_ranks(report.ranks)] if report.ranks else []
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
    parts += [tag("p", text, class_="warning") for text in file.damage]
    parts += [_timeline(timeline)] if timeline else []
    parts += [flame_html(timeline.flame)] if timeline and timeline.flame else []
    busiest = max(file.devices, key=lambda device: device.kernel_time_ns, default=None)
    hardware = _hardware(file.hardware, number) if file.hardware else None
    for device in file.devices:
        offset = timeline.device_start_ns.get(device.device, 0) if timeline else 0
        use = hardware if device is busiest else None
        parts.append(_device(device, f"{number}-{device.device}", offset, use, has_timeline=timeline is not None))
    parts += [hardware] if busiest is None else []
    parts += [_memory(curve) for curve in file.memory]
    parts.append(_host(file, number))
    return join(*parts)


def _timeline(timeline: Timeline) -> Html:
    data = {
        "span": timeline.span_ns,
        "unit": timeline.unit_ns,
        "names": timeline.names,
        "categories": timeline.categories,
        "lanes": [vars(lane) for lane in timeline.lanes],
    }
    dropped = f"{timeline.dropped_events:,} of the shortest events are not drawn."
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
        "category",
        "operator",
        "total",
        "share",
        "count",
        "mean",
        "p50",
        "p99",
        "in graph replays",
        "launch configuration",
    ]
    rows = [
        (
            r.name,
            r.category.value,
            r.operator + (f" at {r.location}" if r.location else ""),
            *times(r.total_ns),
            share(r.total_ns, total),
            *counts(r.count),
            *times(r.mean_ns, r.p50_ns, r.p99_ns),
            *counts(r.graph_count),
            r.launch_config,
        )
        for r in kernels
    ]
    return sortable(f"kernels-{key}", headings, rows)


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
    ops = [(r.name or "(none)", *counts(r.count), *times(r.device_ns, r.host_ns)) for r in device.operators]
    calls = [(r.name, *counts(r.count), *times(r.total_ns, r.p50_ns)) for r in device.launches.calls]
    tables = (
        ("Copies", ["direction", "memory", "count", "bytes", "time", "GB/s"], copies),
        ("Graph replays", ["first kernel", "replays", "kernels each", "kernel time", "launch call"], graphs),
        ("Operators", ["operator", "device events", "device time", "host time"], ops),
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
    last, top = max(curve.times_ns[-1], 1), max(curve.peak_bytes, 1)
    points = " ".join(
        f"{1000 * time_ns / last:.1f},{98 - 94 * allocated / top:.1f}"
        for time_ns, allocated in zip(curve.times_ns, curve.allocated_bytes, strict=True)
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
