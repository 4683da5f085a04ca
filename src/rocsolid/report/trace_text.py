"""Answers about traces as text for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rocsolid.catalog.counters import HARDWARE_COUNTERS
from rocsolid.model.finding import Severity
from rocsolid.model.trace import (
    Captures,
    Change,
    CompileJoin,
    DeviceTrace,
    FigureChange,
    HardwareUse,
    KernelChange,
    KernelUse,
    Ranks,
    TraceDifference,
    TraceFile,
    TraceRecord,
)
from rocsolid.report.probe_text import finding_text, summary_line
from rocsolid.report.terminal import Terminal
from rocsolid.report.units import percent, short_name, size, time

_ROWS: Final = 12


def trace_text(record: TraceRecord, terminal: Terminal, *, verbose: bool = False) -> str:
    """All files, then the advice."""
    blocks = [block for file in record.files for block in _file(file, terminal, verbose=verbose)]
    if record.ranks:
        blocks.append(_ranks(record.ranks, terminal))
    shown = [f for f in record.findings if verbose or f.severity > Severity.INFO]
    notes = [f for f in record.findings if f not in shown]
    blocks += [finding_text(finding, terminal) for finding in shown]
    if notes:
        blocks.append(
            "\n".join(terminal.wrap(f"{f.code} {f.message}. {f.why}", indent="  ", first="note  ") for f in notes)
        )
    blocks.append(summary_line(record.findings, terminal, hidden=0))
    return "\n\n".join(blocks) + "\n"


def _file(file: TraceFile, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    rank = f" · rank {file.rank}" if file.rank is not None else ""
    aside = sum(file.set_aside.values())
    counted = f"{file.events:,} events read, {aside:,} of them set aside, {file.skipped_events:,} skipped as broken"
    lines = [terminal.paint(f"{file.file} · {file.producer}{rank}", "bold"), terminal.paint(counted, "dim")]
    lines += [terminal.paint(terminal.wrap(f"counters from {name}"), "dim") for name in file.joined]
    lines += [terminal.paint(terminal.wrap(f"damaged: {text}"), "yellow") for text in file.damage]
    captured = captures_text(file.captures)
    lines += [terminal.wrap(captured)] if captured else []
    if not file.devices:
        lines.append("no work of any device in this trace")
    yield "\n".join(lines)
    for device in file.devices:
        yield from _device(device, terminal, rows=_ROWS * 4 if verbose else _ROWS)
    yield from _host(file, terminal, verbose=verbose)


def _device(device: DeviceTrace, terminal: Terminal, *, rows: int) -> Iterator[str]:
    yield figures_text(device, terminal)
    total = sum(row.time_ns for row in device.categories)
    categories = [
        (r.category.value, time(r.time_ns), percent(r.time_ns, total), f"{r.count:,}") for r in device.categories
    ]
    yield _table(terminal, "device time by category", ("", "time", "share", "events"), categories)
    idle = [
        (r.cause.value, time(r.time_ns), percent(r.time_ns, device.span_ns), f"{r.gap_count:,}") for r in device.idle
    ]
    if idle:
        yield _table(terminal, "idle time by cause", ("", "time", "of span", "gaps"), idle)
    if device.kernels:
        yield _kernels(device, terminal, rows=rows)
        origins = list(_origins(device, terminal, rows=min(rows, 6)))
        if origins:
            yield "\n".join(origins)
    if device.copies:
        yield _copies(device, terminal)
    if device.graphs:
        yield _graphs(device, terminal, rows=rows)


def _kernels(device: DeviceTrace, terminal: Terminal, *, rows: int) -> str:
    width = max(24, terminal.width - 58)
    cells = [
        (
            short_name(r.name, width),
            time(r.total_ns),
            percent(r.total_ns, device.kernel_time_ns),
            f"{r.count:,}",
            time(r.mean_ns),
            time(r.p50_ns),
            time(r.p99_ns),
        )
        for r in device.kernels[:rows]
    ]
    title = f"kernels ({len(device.kernels)} names)"
    return _table(terminal, title, ("", "total", "share", "count", "mean", "p50", "p99"), cells)


def _copies(device: DeviceTrace, terminal: Terminal) -> str:
    cells = [
        (
            f"{r.direction} {r.memory}".strip(),
            f"{r.count:,}",
            size(r.bytes) if r.unsized_count < r.count else "?",
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
    headings = ("first kernel", "launches", "kernels each", "kernel time", "launch")
    return _table(terminal, "graph replays", headings, cells)


def figures_text(device: DeviceTrace, terminal: Terminal) -> str:
    """The figures of a device in a few lines; text and HTML show the same."""
    head = f"device {device.device}" + (f" · {device.model}" if device.model else "")
    pairs = list(figures(device))
    width = max(len(label) for label, _ in pairs)
    lines = []
    for label, text in pairs:
        wrapped = terminal.wrap(text, indent=" " * (width + 4), first=f"  {label:<{width}}  ")
        lines.append(wrapped.replace(label, terminal.paint(label, "dim"), 1))
    return "\n".join([terminal.paint(head, "bold"), *lines])


def figures(device: DeviceTrace) -> Iterator[tuple[str, str]]:
    """Label and text of each figure."""
    span = device.span_ns
    yield "span", time(span)
    yield "busy", f"{time(device.busy_ns)} ({percent(device.busy_ns, span)})"
    yield "idle", f"{time(device.idle_ns)} ({percent(device.idle_ns, span)})"
    yield (
        "kernels",
        f"{device.kernel_count:,} in {time(device.kernel_time_ns)}, on {_many(device.stream_count, 'stream')}",
    )
    yield "copies", f"{device.copy_count:,}, {size(device.copy_bytes)}; {device.set_count:,} fills"
    share = percent(device.graph_kernel_time_ns, device.kernel_time_ns)
    replays = f"{device.graph_launches:,} launches replay {device.graph_kernel_count:,} kernels"
    yield "under graphs", f"{replays}: {share} of kernel time"
    launches = device.launches
    if launches.launch_count:
        half = f"half within {time(launches.call_p50_ns)} on the host and {time(launches.delay_p50_ns)} to the start"
        short = f"{launches.short_kernel_count:,} kernels shorter than their launch"
        said = f"{half}; {short}" if launches.call_p50_ns else "all of them of graphs"
        yield "launches", f"{launches.launch_count:,}, {said}"
    yield "waits", f"{launches.sync_count:,} synchronisations, {time(launches.sync_time_ns)} on the host"
    if launches.unlinked_count:
        yield "no launch", f"{launches.unlinked_count:,} kernels and copies were launched outside the trace"
    talk = device.collectives
    if talk.count:
        yield "collectives", f"{talk.count:,} in {time(talk.time_ns)}, {time(talk.exposed_ns)} with nothing beside them"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _origins(device: DeviceTrace, terminal: Terminal, *, rows: int) -> Iterator[str]:
    """Who launched the hottest kernels, and how."""
    for row in device.kernels[:rows]:
        said = [
            f"by {row.operator}" if row.operator else "",
            f"at {row.place}" if row.place else "",
            row.shape,
            f"{row.graph_count:,} of {row.count:,} in graphs" if row.graph_count else "",
        ]
        text = "; ".join(filter(None, said))
        if text:
            yield terminal.wrap(terminal.paint(text, "dim"), indent="      ", first=f"  {short_name(row.name, 40)}: ")


def _host(file: TraceFile, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    rows = _ROWS * 4 if verbose else 6
    if file.steps:
        shown = [(r.name, time(r.total_ns)) for r in file.steps[:rows]]
        left = len(file.steps) - len(shown)
        yield _table(terminal, "steps", ("", "time"), [*shown, *([(f"{left} more", "")] if left else [])])
    if file.regions:
        yield _table(
            terminal,
            "annotations and compiled regions on the host",
            ("", "count", "total", "p50", "longest"),
            [
                (short_name(r.name, 60), f"{r.count:,}", time(r.total_ns), time(r.p50_ns), time(r.longest_ns))
                for r in file.regions[:rows]
            ],
        )
    if file.graph_breaks:
        yield f"{file.graph_breaks} graph breaks or recompiles: {file.graph_breaks + 1} compiled regions"
    if file.compiles:
        yield "\n".join(_compiles(file, file.compiles, terminal))
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
    for use in file.memory:
        yield f"memory of device {use.device}: peak {size(use.peak_bytes)}"


def captures_text(captures: Captures) -> str:
    """What was captured while the trace was taken; nothing when nothing was."""
    if not captures.count:
        return ""
    graphs = "a graph was" if captures.count == 1 else f"{captures.count} graphs were"
    recorded = f"{captures.recorded_launches:,} of {captures.launches:,} launches were recorded instead of run"
    return f"{graphs} captured in {time(captures.time_ns)} on the host; {recorded}"


def _compiles(file: TraceFile, join: CompileJoin, terminal: Terminal) -> Iterator[str]:
    """Where each compiled region comes from."""
    yield terminal.paint(f"compiled regions by the user's line, from {join.source}", "bold")
    for region in file.regions:
        if region.function:
            said = f"{region.function} at {region.place}" + (f"; {region.why}" if region.why else "")
            first = f"  {short_name(region.name, 40)}  {time(region.total_ns)}  "
            yield terminal.wrap(said, indent="      ", first=first)
    for text in join_notes(join):
        yield terminal.paint(terminal.wrap(text, indent="  "), "dim")


def join_notes(join: CompileJoin) -> Iterator[str]:
    """What the log does not tell, or tells of other functions."""
    if join.unmatched and not join.matched:
        yield f"the log knows none of the {len(join.unmatched)} compiled regions: it is of another run"
    elif join.unmatched:
        yield f"the log does not know {len(join.unmatched)} of the compiled regions: {', '.join(join.unmatched[:5])}"
    elif not join.matched:
        yield "the trace shows no compiled region"
    if join.other_breaks:
        yield f"{join.other_breaks} more graph breaks of the log are in functions that the trace does not show"


def _hardware(use: HardwareUse, terminal: Terminal, *, rows: int) -> str:
    width = max(24, terminal.width - 74)
    cells = [(short_name(u.kernel, width), *use_cells(u)) for u in use.kernels[:rows]]
    title = "use of the chip by kernel, from hardware counters"
    told = any(value is not None for u in use.kernels for value in (u.occupancy, u.l2_hit, u.bytes))
    table = _table(terminal, title, USE_HEADINGS, cells) if told else terminal.paint(title, "bold")
    more = [peak_text(use) if told else "", *use.unknown]
    return "\n".join([table, *(terminal.paint(terminal.wrap(text, indent="  "), "dim") for text in more if text)])


USE_HEADINGS: Final = ("", "dispatches", "mean", "occupancy", "L2 hits", "moved", "GB/s", "of peak")


def use_cells(use: KernelUse) -> tuple[str, ...]:
    """The figures of a kernel; a question mark for what nobody counted."""
    return (
        f"{use.dispatches:,}",
        "?" if use.time_ns is None else time(use.time_ns),
        _share(use.occupancy),
        _share(use.l2_hit),
        "?" if use.bytes is None else size(use.bytes),
        "?" if use.gb_per_s is None else f"{use.gb_per_s:,.0f}",
        _share(use.of_peak),
    )


def _share(value: float | None) -> str:
    return "?" if value is None else percent(value, 1)


def peak_text(use: HardwareUse) -> str:
    """What the figures are held against."""
    parts = [
        f"{use.peak_gb_per_s:,.1f} GB/s to and from memory" if use.peak_gb_per_s else "",
        f"{use.waves_per_unit} wavefronts a compute unit" if use.waves_per_unit else "",
    ]
    said = " and ".join(filter(None, parts))
    return f"peak of {use.chip}: {said}" if said and use.chip else ""


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
    return _table(terminal, "ranks", ("", "computing", "communicating", "exposed", "idle", "span"), rows)


def difference_text(difference: TraceDifference, terminal: Terminal, *, verbose: bool = False) -> str:
    """Two runs side by side."""
    models = [f"{m or 'unknown device'}" for m in (difference.before_model, difference.after_model)]
    head = "\n".join(
        f"{label}  {name} · {model}"
        for label, name, model in zip(("before", "after "), (difference.before, difference.after), models, strict=True)
    )
    tables = [
        _table(terminal, title, ("", "before", "after", "change"), [_changed(row) for row in rows])
        for title, rows in (
            ("figures", difference.figures),
            ("device time by category", difference.categories),
            ("idle time by cause", difference.idle),
        )
        if rows
    ]
    shown = difference.kernels if verbose else difference.kernels[: 2 * _ROWS]
    counts = [f"{sum(row.change is change for row in difference.kernels)} {change.value}" for change in Change]
    kernels = [_kernel_change(row, max(24, terminal.width - 62)) for row in shown]
    tables.append(
        _table(terminal, f"kernels: {', '.join(counts)}", ("", "", "by", "before", "after", "change"), kernels)
    )
    return "\n\n".join([terminal.paint(head, "bold"), *tables]) + "\n"


def _changed(row: FigureChange) -> tuple[str, str, str, str]:
    """Names end in their unit, except for categories and causes, which are times."""
    show = size if row.name.endswith("bytes") else str if row.name.endswith(("count", "launches")) else time
    change = f"{100 * (row.after - row.before) / row.before:+.1f} %" if row.before else "new"
    label = row.name.removesuffix("_ns").replace("_", " ")
    return label, show(row.before), show(row.after), change if row.before or row.after else ""


def _kernel_change(row: KernelChange, width: int) -> tuple[str, ...]:
    name = short_name(row.after or row.before, width)
    return (
        name,
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
        f"  {line[0]:<{widths[0]}}  " + "  ".join(f"{cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in lines
    ]
    return "\n".join([terminal.paint(title, "bold"), terminal.paint(text[0], "dim"), *text[1:]])
