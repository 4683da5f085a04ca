"""Compile logs and graph breaks as one self-contained HTML page, with a timeline."""

from collections.abc import Sequence
from html import escape
from typing import Final

from rocsolid.model.code_line import CodeLine
from rocsolid.model.compile_log import (
    BreakReport,
    CompiledGraph,
    CompiledKernel,
    CompileLog,
    CompileSpan,
    GraphBreak,
    Recompile,
    UncompiledFrame,
    code_lines,
    count_breaks,
    short_location,
)
from rocsolid.report.compiles_text import compiles_headline, graph_facts, kernels_text
from rocsolid.report.html_page import page, table
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
_STYLE: Final = """<style>
.timeline { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem; }
.lane { display: grid; grid-template-columns: minmax(9rem, 16rem) 1fr 4.5rem; gap: .6rem; align-items: center; }
.lane > :first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.lane > :last-child { text-align: right; font-variant-numeric: tabular-nums; }
.lane svg, .flame { width: 100%; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .6rem 0 0; padding: 0; list-style: none; font-size: .85rem; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.flame { margin: .6rem 0; }
.minus { color: var(--critical); } .plus { color: var(--good); }
.kernel pre { max-height: 30rem; overflow: auto; white-space: pre; }
@media (max-width: 40rem) { .lane { grid-template-columns: 6rem 1fr 4rem; } }
</style>"""


def compiles_html(log: CompileLog) -> str:
    """The timeline, then every graph, then the graph breaks."""
    parts = [_STYLE, _counts(log), "<h2>Timeline</h2>", _timeline(log), "<h2>Compiled graphs</h2>"]
    parts += [_graph(graph) for graph in log.graphs] or ["<p>Nothing was compiled.</p>"]
    if log.breaks:
        parts += ["<h2>Graph breaks</h2>", *(_break(found) for found in log.breaks)]
    if log.uncompiled:
        parts += ["<h2>Not compiled (runs in eager)</h2>", _uncompiled(log.uncompiled)]
    title = f"Compile log{': ' + log.workload if log.workload else ''}"
    return page(title, f"{compiles_headline(log, Terminal())} · {log.started_at}", "\n".join(parts))


def breaks_html(report: BreakReport) -> str:
    """Every break with its fix, then the graphs that the call was split into."""
    parts = [_STYLE]
    parts += [_break(found) for found in report.breaks] or [
        '<p class="good">No graph break: the whole call is one graph.</p>'
    ]
    rows = [
        (
            "",
            [
                str(g.number),
                escape(g.function),
                f"<code>{escape(short_location(g.location))}</code>",
                str(g.launches),
                _operators(g),
            ],
        )
        for g in report.graphs
    ]
    parts += ["<h2>Compiled graphs</h2>", table("graphs", ["#", "function", "location", "launches", "operators"], rows)]
    if report.uncompiled:
        parts += ["<h2>Not compiled (runs in eager)</h2>", _uncompiled(report.uncompiled)]
    subtitle = f"{count_breaks(report.breaks)}, {len(report.graphs)} compiled graphs · torch {report.torch}"
    return page(f"Graph breaks: {report.function}", subtitle, "\n".join(parts))


def _counts(log: CompileLog) -> str:
    recompiles = sum(g.recompile is not None for g in log.graphs)
    launches = sum(g.launches for g in log.graphs)
    cells = [
        (f"{log.compile_s:.1f} s", "compiling", ""),
        (str(len(log.graphs)), "compiled graphs", ""),
        (str(launches), "kernel launches", ""),
        (str(recompiles), "recompiles", "warning" if recompiles else ""),
        (str(sum(found.count for found in log.breaks)), "graph breaks", "warning" if log.breaks else ""),
    ]
    return (
        '<ul class="counts">'
        + "".join(f'<li><b class="{css}">{value}</b>{label}</li>' for value, label, css in cells)
        + "</ul>"
    )


def _timeline(log: CompileLog) -> str:
    if not any(graph.spans for graph in log.graphs):
        return "<p>No times were recorded.</p>"
    begin = min(s.start_s for g in log.graphs for s in g.spans)
    end = max(s.start_s + s.seconds for g in log.graphs for s in g.spans)
    lanes = [
        f'<div class="lane"><span title="{escape(short_location(g.location))}">{g.number} {escape(g.function)} '
        f'<span class="faint">{g.kind.value}</span></span>{_bars(g.spans, begin, end, one_row=True)}'
        f"<span>{g.seconds:.2f} s</span></div>"
        for g in log.graphs
    ]
    phases = {span.phase for graph in log.graphs for span in graph.spans}
    legend = "".join(
        f'<li><i style="background:{colour}"></i>{escape(phase)}</li>'
        for phase, colour in _COLOURS.items()
        if phase in phases
    )
    return f'<div class="timeline" id="timeline">{"".join(lanes)}<ul class="legend">{legend}</ul></div>'


def _bars(spans: Sequence[CompileSpan], begin: float, end: float, *, one_row: bool) -> str:
    """Spans as bars; with `one_row`, all in one row with the innermost on top."""
    total_s = max(end - begin, 1e-9)
    depth = 0 if one_row else max((s.depth for s in spans), default=0)
    bars = []
    for span in sorted(spans, key=lambda s: s.depth):
        left, width = (span.start_s - begin) / total_s * 100, max(span.seconds / total_s * 100, 0.1)
        top = 0 if one_row else span.depth * _ROW_HEIGHT
        label = f"{span.phase}: {span.name}, {span.seconds:.3f} s"
        bars.append(
            f'<rect x="{left:.3f}%" y="{top}" width="{width:.3f}%" height="{_ROW_HEIGHT - 4}" rx="2" '
            f'fill="{_COLOURS.get(span.phase, _COLOURS["other"])}"><title>{escape(label)}</title></rect>'
        )
    kind = "" if one_row else ' class="flame"'
    return f'<svg{kind} height="{(depth + 1) * _ROW_HEIGHT}" role="img" aria-label="timeline">{"".join(bars)}</svg>'


def _graph(graph: CompiledGraph) -> str:
    facts = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in graph_facts(graph))
    flame = ""
    if graph.spans:
        begin, end = graph.spans[0].start_s, max(s.start_s + s.seconds for s in graph.spans)
        flame = _bars(graph.spans, begin, end, one_row=False)
    kernels = "".join(_kernel(kernel) for kernel in graph.kernels)
    css = " is-warning" if graph.recompile else " is-info"
    head = (
        f"<b>{graph.number} {escape(graph.function)}</b> {graph.kind.value} · {graph.seconds:.2f} s · "
        f"{f'{kernels_text(graph)} · ' if graph.kernels else ''}cache {graph.cache.value}"
    )
    return f"""<details class="finding{css}" id="graph-{graph.number}"><summary>{head}</summary><div>
<p class="faint">{escape(short_location(graph.location))}</p>{_recompile(graph.recompile) if graph.recompile else ""}<dl>{facts}</dl>{flame}
{"<h3>Kernels</h3>" + kernels if kernels else ""}</div></details>"""


def _kernel(kernel: CompiledKernel) -> str:
    locations = "".join(f"<div><code>{escape(short_location(location))}</code></div>" for location in kernel.locations)
    label = f"{kernel.kind}, ×{kernel.launches}, {', '.join(kernel.operators) or 'operators unknown'}"
    code = f"<pre>{escape(kernel.code)}</pre>" if kernel.code else ""
    return f"""<details class="kernel"><summary><code>{escape(kernel.name)}</code> <span class="faint">{escape(label)}</span></summary>
{locations}{code}</details>"""


def _break(found: GraphBreak) -> str:
    times = f" ({found.count} times)" if found.count > 1 else ""
    effect = f"<dt>effect</dt><dd>{escape(found.effect)}</dd>" if found.effect else ""
    return f"""<details class="finding is-warning" open><summary><b>graph break{times}:</b> {escape(found.cause)}</summary><div>
{_code(found.code)}<dl><dt>in</dt><dd>{escape(found.function)}</dd>{effect}<dt>fix</dt><dd>{escape(found.fix)}</dd>
{_example(found.example_before, found.example_after)}
<dt>torch</dt><dd>{escape(found.id)} {escape(found.kind)}<details><summary>full message</summary><pre>{escape(found.torch_message)}</pre></details></dd></dl></div></details>"""


def _recompile(recompile: Recompile) -> str:
    return f"""<p><b>recompile:</b> {escape(recompile.change)}</p>{_code(recompile.code)}<dl>
<dt>cause</dt><dd>{escape(recompile.cause)}</dd><dt>failed guard</dt><dd><code>{escape(recompile.guard)}</code> of compile {escape(recompile.previous_compile_id)}</dd>
<dt>fix</dt><dd>{escape(recompile.fix)}</dd>{_example(recompile.example_before, recompile.example_after)}</dl>"""


def _code(code: CodeLine) -> str:
    """The user's line, with carets under the expression."""
    lines = [line[2:] for line in code_lines(code)]
    return f"<pre>{escape(chr(10).join(lines))}</pre>" if lines else ""


def _example(before: str, after: str) -> str:
    if not before or not after:
        return ""
    removed = "".join(f'<div class="minus">- {escape(line)}</div>' for line in before.splitlines())
    added = "".join(f'<div class="plus">+ {escape(line)}</div>' for line in after.splitlines())
    return f"<dt>example</dt><dd><pre>{removed}{added}</pre></dd>"


def _uncompiled(frames: Sequence[UncompiledFrame]) -> str:
    rows = [
        (
            "",
            [
                escape(f.function),
                f"<code>{escape(short_location(f.location))}</code>",
                f"{f.seconds:.2f} s",
                escape(f.reason),
            ],
        )
        for f in frames
    ]
    return table("uncompiled", ["function", "location", "time", "reason"], rows)


def _operators(graph: CompiledGraph) -> str:
    return escape(", ".join(f"{name} ×{n}" if n > 1 else name for name, n in graph.operators.items()))
