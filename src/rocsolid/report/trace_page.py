"""Trace reports as one self-contained HTML page, with a timeline and a flame graph when they were built."""

import json
from collections.abc import Mapping, Sequence
from html import escape
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
from rocsolid.report.flame_page import flame_html
from rocsolid.report.html_page import asset, finding_html, page
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
    "<kbd>←</kbd> <kbd>→</kbd> move, <kbd>↑</kbd> <kbd>↓</kbd> zoom, <kbd>0</kbd> show all, <kbd>/</kbd> search, <kbd>n</kbd>"
    " <kbd>p</kbd> next and previous match, wheel to zoom, drag to move, click for details"
)
_CARD_METRICS: Final = ("span", "busy", "idle")


def trace_html(report: TraceReport, timelines: Mapping[str, Timeline] | None = None) -> str:
    """Return the page: the findings, then for each file the timeline, the metrics and the tables."""
    parts = [f"<style>{asset('trace.css')}</style>", "<h2>Findings</h2>"]
    parts.append("".join(finding_html(f) for f in report.findings) or '<p class="good">No findings.</p>')
    parts += [_ranks(report.ranks)] if report.ranks else []
    for number, file in enumerate(report.files):
        timeline = (timelines or {}).get(file.file)
        parts.append(_file(file, number, timeline if number == 0 else None))
    if timelines:
        parts.append(f"<script>\n{asset('trace.js')}</script>")
    if any(timeline.flame for timeline in (timelines or {}).values()):
        parts.append(f"<script>\n{asset('flame.js')}</script>")
    return page("Where the time goes", " · ".join(file.file for file in report.files), "\n".join(parts))


def _ranks(ranks: Ranks) -> str:
    headings = ["rank", "compute", "communication", "exposed", "idle", "span"]
    rows = [
        (f"rank {r.rank}", *times(r.compute_ns, r.communication_ns, r.exposed_ns, r.idle_ns, r.span_ns))
        for r in ranks.rows
    ]
    return f"<h2>Ranks</h2>{sortable('ranks', headings, rows)}"


def _file(file: TraceFile, number: int, timeline: Timeline | None) -> str:
    rank = f" · rank {file.rank}" if file.rank is not None else ""
    parts = [
        f"<h2>{escape(file.file)}<span class='faint'>{escape(rank)}</span></h2>",
        f"<p class='faint'>{event_counts_text(file)}</p>",
    ]
    captured = captures_text(file.captures)
    parts += [f"<p>{escape(captured)}</p>"] if captured else []
    parts += [f"<p class='warning'>{escape(text)}</p>" for text in file.damage]
    parts += [_timeline(timeline)] if timeline else []
    parts += [flame_html(timeline.flame)] if timeline and timeline.flame else []
    busiest = max(file.devices, key=lambda device: device.kernel_time_ns, default=None)
    hardware = _hardware(file.hardware, number) if file.hardware else ""
    for device in file.devices:
        offset = timeline.device_start_ns.get(device.device, 0) if timeline else 0
        use = hardware if device is busiest else ""
        parts.append(_device(device, f"{number}-{device.device}", offset, use, has_timeline=timeline is not None))
    parts += [hardware] if busiest is None else []
    parts += [_memory(curve) for curve in file.memory]
    parts.append(_host(file, number))
    return "\n".join(parts)


def _timeline(timeline: Timeline) -> str:
    data = {
        "span": timeline.span_ns,
        "unit": timeline.unit_ns,
        "names": timeline.names,
        "categories": timeline.categories,
        "lanes": [vars(lane) for lane in timeline.lanes],
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    dropped = (
        f"<p class='faint'>{timeline.dropped_events:,} of the shortest events are not drawn.</p>"
        if timeline.dropped_events
        else ""
    )
    legend = "".join(f'<li><i style="background:var(--c-{c.value})"></i>{c.value}</li>' for c in Category)
    return f"""<h3>Timeline</h3>
<div class="tools"><input type="search" id="timeline-search" placeholder="search events" aria-label="search events">
<output id="timeline-found" class="faint"></output><button type="button" data-zoom="in">zoom in</button>
<button type="button" data-zoom="out">zoom out</button><button type="button" data-zoom="all">show all</button></div>
<div class="timeline" id="timeline"><canvas tabindex="0" style="height:260px" role="application"
 aria-label="timeline of the trace; arrow keys move and zoom"></canvas><div class="tip" hidden></div></div>
<pre class="detail" id="timeline-detail" aria-live="polite"></pre>
<ul class="legend">{legend}</ul><p class="faint keys">{_KEYS_HELP}</p>{dropped}
<script type="application/json" id="timeline-about">{text}</script>
<script type="text/plain" id="timeline-data">{timeline.data}</script>"""


def _device(device: DeviceTrace, key: str, offset: int, hardware: str, *, has_timeline: bool) -> str:
    total = sum(row.time_ns for row in device.categories)
    categories = [
        (r.category.value, *times(r.time_ns), share(r.time_ns, total), *counts(r.count)) for r in device.categories
    ]
    idle = [
        (r.cause.value, *times(r.time_ns), share(r.time_ns, device.span_ns), *counts(r.gap_count)) for r in device.idle
    ]
    hint = " <span class='faint'>click one to show it in the timeline</span>" if has_timeline else ""
    parts = [
        f"<h3>Device {escape(device.device)} <span class='faint'>{escape(device.model)}</span></h3>",
        _metrics(device),
        "<div class='pair'><div><h3>Device time by category</h3>",
        sortable(f"categories-{key}", ["category", "time", "share", "events"], categories),
        "</div><div><h3>Idle time by cause</h3>",
        sortable(f"idle-{key}", ["cause", "time", "of span", "gaps"], idle),
        "</div></div><h3>Kernels</h3>",
        _kernels(device.kernels, key, device.kernel_time_ns),
        hardware,
    ]
    if device.gaps:
        parts += [f"<h3>Gaps{hint}</h3>", _gaps(device.gaps, key, offset)]
    return "\n".join([*parts, _small_tables(device, key)])


def _metrics(device: DeviceTrace) -> str:
    pairs = dict(metrics(device))
    cards = []
    for label in _CARD_METRICS:
        text, _, more = pairs[label].partition(" (")
        cards.append(f"<li><span class='faint'>{label}</span><b>{escape(text)}</b>{escape(more.rstrip(')'))}</li>")
    rest = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs.items() if k not in _CARD_METRICS)
    total = max(sum(row.time_ns for row in device.categories), 1)
    bar = "".join(
        f'<i style="width:{100 * r.time_ns / total:.3f}%;background:var(--c-{r.category.value})" '
        f'title="{r.category.value} {percent(r.time_ns, total)}"></i>'
        for r in device.categories
    )
    return f"<ul class='figures'>{''.join(cards)}</ul><dl>{rest}</dl><div class='bar'>{bar}</div>"


def _kernels(kernels: Sequence[KernelRow], key: str, total: int) -> str:
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


def _gaps(gaps: Sequence[Gap], key: str, offset: int) -> str:
    rows = [
        (*times(g.start_ns, g.duration_ns), g.cause.value, g.host_activity, g.launch_call, g.next_work, g.previous_work)
        for g in gaps
    ]
    attributes = [
        f'class="gap" tabindex="0" data-start="{g.start_ns + offset}" data-duration="{g.duration_ns}"'
        f' data-details="{escape(_gap_details(g))}"'
        for g in gaps
    ]
    headings = ["start", "duration", "cause", "host activity", "launched by", "next", "previous"]
    return sortable(f"gaps-{key}", headings, rows, attributes)


def _gap_details(gap: Gap) -> str:
    host = f" Host during the gap: {gap.host_activity}." if gap.host_activity else ""
    launch = f", launched by {gap.launch_call}" if gap.launch_call else ""
    operator = f" in {gap.operator}" if launch and gap.operator else ""
    return f"{time(gap.duration_ns)} idle, cause: {gap.cause.value}. Next: {gap.next_work}{launch}{operator}.{host}"


def _small_tables(device: DeviceTrace, key: str) -> str:
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
        f"<div><h3>{title}</h3>{sortable(f'{title.split()[0].lower()}-{key}', headings, rows)}</div>"
        for title, headings, rows in tables
        if rows
    ]
    return f"<div class='pair'>{''.join(shown)}</div>"


def _host(file: TraceFile, number: int) -> str:
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
        return ""
    headings = ["name", *(("function", "line", "reason") if log else ()), "count", "total", "p50", "longest"]
    notes = "".join(f"<p class='faint'>{escape(text)}</p>" for text in (compile_log_notes(log) if log else ()))
    table = sortable(f"regions-{number}", headings, rows)
    return f"<h3>Steps, annotations and compiled regions</h3>{notes}{table}"


def _hardware(use: HardwareUtilization, number: int) -> str:
    """Return the table of utilization by kernel. Unknown values sort below all others."""
    fields = ("dispatches", "time_ns", "occupancy", "l2_hit_rate", "bytes", "gb_per_s", "peak_fraction")
    rows: list[list[Cell]] = []
    for kernel in use.kernels:
        values = [getattr(kernel, name) for name in fields]
        cells = [
            (text, -1.0 if v is None else float(v)) for text, v in zip(utilization_cells(kernel), values, strict=True)
        ]
        rows.append([kernel.kernel, *cells])
    notes = "".join(f"<p class='faint'>{escape(text)}</p>" for text in (peak_text(use), *use.unknown) if text)
    table = sortable(f"hardware-{number}", ["kernel", *UTILIZATION_HEADINGS[1:]], rows)
    return f"<h3>GPU utilization by kernel <span class='faint'>from hardware counters</span></h3>{notes}{table}"


def _memory(curve: MemoryCurve) -> str:
    """Return a curve of the allocated memory over time."""
    last, top = max(curve.times_ns[-1], 1), max(curve.peak_bytes, 1)
    points = " ".join(
        f"{1000 * time_ns / last:.1f},{98 - 94 * allocated / top:.1f}"
        for time_ns, allocated in zip(curve.times_ns, curve.allocated_bytes, strict=True)
    )
    label = f"allocated memory of device {curve.device}: peak {size(curve.peak_bytes)}, over {time(last)}"
    return (
        f"<h3>{escape(label)}</h3><svg class='memory' viewBox='0 0 1000 100' preserveAspectRatio='none' role='img'"
        f" aria-label='{escape(label)}'><polyline points='{points}' fill='none' stroke='var(--link)' stroke-width='1.5'"
        f" vector-effect='non-scaling-stroke'/></svg>"
    )
