"""Compile logs and graph breaks as one self-contained HTML page, with a timeline."""

from collections.abc import Iterator, Sequence
from typing import Final

from rocsolid.model.code_line import CodeLine
from rocsolid.model.compile_log import (
    BreakReport,
    CompiledGraph,
    CompiledKernel,
    CompileLog,
    CompileSpan,
    GraphBreak,
    RecompileGroup,
    UncompiledFrame,
    code_lines,
    short_location,
)
from rocsolid.report.compiles_text import compiles_headline, graph_facts, kernels_text
from rocsolid.report.html import Html, Node, join, tag
from rocsolid.report.html_page import definitions, legend, page, table
from rocsolid.report.terminal import Terminal

# Colours that are distinguishable in light and dark mode, and for most colour-blind readers.
_COLOURS: Final = {
    "Dynamo tracing": "#4477aa",
    "guards": "#66ccee",
    "AOTAutograd": "#228833",
    "FX passes": "#88bb55",
    "lowering": "#ccbb44",
    "fusion": "#ee9944",
    "code generation": "#ee6677",
    "kernel compilation": "#aa3377",
    "autotuning": "#cc2222",
    "CUDA graphs": "#775533",
    "cache": "#999999",
    "Inductor (other)": "#887799",
    "other": "#bbbbbb",
}
_ROW_HEIGHT: Final = 22
_STYLES: Final = ("compiles.css",)


def compiles_html(log: CompileLog) -> str:
    """The recompiles by cause, the timeline, every graph, then the graph breaks."""
    parts: list[Node] = [_counts(log)]
    if log.recompiles:
        parts += [tag("h2", "Recompiles by cause"), *map(_recompiles, log.recompiles)]
    parts += [tag("h2", "Timeline"), _timeline(log), tag("h2", "Compiled graphs")]
    parts += [_graph(graph) for graph in log.graphs] or [tag("p", "Nothing was compiled.")]
    if log.breaks:
        parts += [tag("h2", "Graph breaks"), *(_break(found) for found in log.breaks)]
    if log.uncompiled:
        parts += [tag("h2", "Not compiled (runs in eager)"), _uncompiled(log.uncompiled)]
    title = f"Compile log{': ' + log.workload if log.workload else ''}"
    return page(title, f"{compiles_headline(log, Terminal())} · {log.started_at}", *parts, styles=_STYLES)


def breaks_html(report: BreakReport) -> str:
    """Every break with its fix, then the graphs that the call was split into."""
    parts: list[Node] = [_break(found) for found in report.breaks] or [
        tag("p", "No graph break: the whole call is one graph.", class_="good")
    ]
    rows: list[tuple[str, list[Node]]] = [
        ("", [g.number, g.function, tag("code", short_location(g.location)), g.launches, _operators(g)])
        for g in report.graphs
    ]
    headings = ["#", "function", "location", "launches", "operators"]
    parts += [tag("h2", "Compiled graphs"), table("graphs", headings, rows)]
    if report.uncompiled:
        parts += [tag("h2", "Not compiled (runs in eager)"), _uncompiled(report.uncompiled)]
    return page(f"Graph breaks: {report.function}", f"{report.counts} · torch {report.torch}", *parts, styles=_STYLES)


def _counts(log: CompileLog) -> Html:
    recompiles = sum(g.recompile is not None for g in log.graphs)
    launches = sum(g.launches for g in log.graphs)
    cells = [
        (f"{log.compile_s:.1f} s", "compiling", ""),
        (str(len(log.graphs)), "compiled graphs", ""),
        (str(launches), "kernel launches", ""),
        (str(recompiles), "recompiles", "warning" if recompiles else ""),
        (str(sum(found.count for found in log.breaks)), "graph breaks", "warning" if log.breaks else ""),
    ]
    return tag("ul", [tag("li", tag("b", value, class_=css), label) for value, label, css in cells], class_="counts")


def _timeline(log: CompileLog) -> Html:
    if not any(graph.spans for graph in log.graphs):
        return tag("p", "No times were recorded.")
    begin = min(s.start_s for g in log.graphs for s in g.spans)
    end = max(s.start_s + s.seconds for g in log.graphs for s in g.spans)
    lanes = [
        tag(
            "div",
            tag(
                "span",
                f"{g.number} {g.function} ",
                tag("span", g.kind.value, class_="faint"),
                title=short_location(g.location),
            ),
            _bars(g.spans, begin, end, one_row=True),
            tag("span", f"{g.seconds:.2f} s"),
            class_="lane",
        )
        for g in log.graphs
    ]
    phases = {span.phase for graph in log.graphs for span in graph.spans}
    shown = [(phase, colour) for phase, colour in _COLOURS.items() if phase in phases]
    return tag("div", lanes, legend(shown), class_="timeline", id="timeline")


def _bars(spans: Sequence[CompileSpan], begin: float, end: float, *, one_row: bool) -> Html:
    """Spans as bars; with `one_row`, all in one row with the innermost on top."""
    total_s = max(end - begin, 1e-9)
    depth = 0 if one_row else max((s.depth for s in spans), default=0)
    bars = []
    for span in sorted(spans, key=lambda s: s.depth):
        left, width = (span.start_s - begin) / total_s * 100, max(span.seconds / total_s * 100, 0.1)
        label = f"{span.phase}: {span.name}, {span.seconds:.3f} s"
        bars.append(
            tag(
                "rect",
                tag("title", label),
                x=f"{left:.3f}%",
                y=0 if one_row else span.depth * _ROW_HEIGHT,
                width=f"{width:.3f}%",
                height=_ROW_HEIGHT - 4,
                rx=2,
                fill=_COLOURS.get(span.phase, _COLOURS["other"]),
            )
        )
    height, css = (depth + 1) * _ROW_HEIGHT, None if one_row else "flame"
    return tag("svg", bars, class_=css, height=height, role="img", aria_label="timeline")


def _graph(graph: CompiledGraph) -> Html:
    flame = None
    if graph.spans:
        begin, end = graph.spans[0].start_s, max(s.start_s + s.seconds for s in graph.spans)
        flame = _bars(graph.spans, begin, end, one_row=False)
    kernels = f"{kernels_text(graph)} · " if graph.kernels else ""
    facts = f" {graph.kind.value} · {graph.seconds:.2f} s · {kernels}cache {graph.cache.value}"
    return tag(
        "details",
        tag("summary", tag("b", f"{graph.number} {graph.function}"), facts),
        tag(
            "div",
            tag("p", short_location(graph.location), class_="faint"),
            tag("p", tag("b", "recompile:"), f" {graph.recompile.change}") if graph.recompile else None,
            definitions(graph_facts(graph)),
            flame,
            [tag("h3", "Kernels"), [_kernel(kernel) for kernel in graph.kernels]] if graph.kernels else None,
        ),
        class_=f"finding {'is-warning' if graph.recompile else 'is-info'}",
        id=f"graph-{graph.number}",
    )


def _kernel(kernel: CompiledKernel) -> Html:
    label = f"{kernel.kind}, ×{kernel.launches}, {', '.join(kernel.operators) or 'operators unknown'}"
    return tag(
        "details",
        tag("summary", tag("code", kernel.name), " ", tag("span", label, class_="faint")),
        [tag("div", tag("code", short_location(location))) for location in kernel.locations],
        tag("pre", kernel.code) if kernel.code else None,
        class_="kernel",
    )


def _break(found: GraphBreak) -> Html:
    times = f" ({found.count} times)" if found.count > 1 else ""
    message = tag("details", tag("summary", "full message"), tag("pre", found.torch_message))
    rows: list[tuple[Node, Node]] = [
        ("in", found.function),
        *([("effect", found.effect)] if found.effect else []),
        ("fix", found.fix),
        *(
            _diff("your line, checked", found.line_fix.before, found.line_fix.after)
            if found.line_fix
            else _diff("example", found.example_before, found.example_after)
        ),
        ("torch", [f"{found.id} {found.kind}", message]),
    ]
    return tag(
        "details",
        tag("summary", tag("b", f"graph break{times}:"), " ", found.cause),
        tag("div", _code(found.code), definitions(rows)),
        class_="finding is-warning",
        open=True,
    )


def _recompiles(group: RecompileGroup) -> Html:
    recompile = group.first
    many = len(group.graphs) > 1
    graphs = [
        [", " if n else "", tag("a", str(number), href=f"#graph-{number}")] for n, number in enumerate(group.graphs)
    ]
    rows: list[tuple[Node, Node]] = [
        ("cause", recompile.cause),
        ("failed guard", join(tag("code", recompile.guard), f" of compile {recompile.previous_compile_id}")),
        ("fix", recompile.fix),
        *_diff("example", recompile.example_before, recompile.example_after),
        ("graphs" if many else "graph", graphs),
    ]
    count = f"{len(group.graphs)} recompile{'s' if many else ''} of {group.function} ({group.seconds:.2f} s):"
    return tag(
        "details",
        tag("summary", tag("b", count), f" {group.change}"),
        tag("div", _code(recompile.code), definitions(rows)),
        class_="finding is-warning",
        open=True,
    )


def _code(code: CodeLine) -> Html | None:
    """The user's line, with carets under the expression."""
    lines = [line[2:] for line in code_lines(code)]
    return tag("pre", "\n".join(lines)) if lines else None


def _diff(label: str, before: str, after: str) -> Iterator[tuple[str, Html]]:
    if before and after:
        removed = [tag("div", f"- {line}", class_="minus") for line in before.splitlines()]
        added = [tag("div", f"+ {line}", class_="plus") for line in after.splitlines()]
        yield label, tag("pre", removed, added)


def _uncompiled(frames: Sequence[UncompiledFrame]) -> Html:
    rows: list[tuple[str, list[Node]]] = [
        ("", [f.function, tag("code", short_location(f.location)), f"{f.seconds:.2f} s", f.reason]) for f in frames
    ]
    return table("uncompiled", ["function", "location", "time", "reason"], rows)


def _operators(graph: CompiledGraph) -> str:
    return ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in graph.operators.items())
