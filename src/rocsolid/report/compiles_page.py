"""Compile logs and graph breaks as one self-contained HTML page, with a timeline."""

from collections.abc import Sequence
from html import escape
from typing import Final

from rocsolid.model.compile_log import BreakReport, CompiledGraph, CompileLog, GraphBreak, Kernel, Span, UncompiledFrame
from rocsolid.report.compiles_text import compiles_headline, graph_facts, kernels_text
from rocsolid.report.html_page import page, table
from rocsolid.report.terminal import Terminal

# Colours that stay apart in light and dark, and for most who see colours differently.
_COLOURS: Final = {
    "tracing": "#4477aa",
    "guards": "#66ccee",
    "deriving forward and backward": "#228833",
    "rewriting the graph": "#88bb55",
    "lowering": "#ccbb44",
    "fusing": "#ee9944",
    "generating code": "#ee6677",
    "compiling kernels": "#aa3377",
    "autotuning": "#cc2222",
    "device graphs": "#775533",
    "caches": "#999999",
    "Inductor, other": "#887799",
    "other": "#bbbbbb",
}
_ROW: Final = 22
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
    """The timeline, then every graph, then what broke."""
    parts = [_STYLE, _counts(log), "<h2>When</h2>", _timeline(log), "<h2>Graphs</h2>"]
    parts += [_graph(graph) for graph in log.graphs] or ["<p>Nothing was compiled.</p>"]
    if log.breaks:
        parts += ["<h2>Graph breaks</h2>", *(_break(found) for found in log.breaks)]
    if log.uncompiled:
        parts += ["<h2>Left to Python</h2>", _uncompiled(log.uncompiled)]
    title = f"What the compiler did{': ' + log.workload if log.workload else ''}"
    return page(title, f"{compiles_headline(log, Terminal())} · {log.started_at}", "\n".join(parts))


def breaks_html(report: BreakReport) -> str:
    """Every break with its fix, then what the call falls into."""
    parts = [_STYLE]
    parts += [_break(found) for found in report.breaks] or [
        '<p class="good">No graph break: one graph holds it all.</p>'
    ]
    rows = [
        ("", [str(g.number), escape(g.function), f"<code>{escape(g.place)}</code>", str(g.launches), _operators(g)])
        for g in report.graphs
    ]
    parts += ["<h2>Graphs</h2>", table("graphs", ["#", "function", "place", "launches", "operators"], rows)]
    if report.uncompiled:
        parts += ["<h2>Left to Python</h2>", _uncompiled(report.uncompiled)]
    said = f"{len(report.breaks)} graph breaks, {len(report.graphs)} graphs · torch {report.torch}"
    return page(f"Where the graph breaks: {report.function}", said, "\n".join(parts))


def _counts(log: CompileLog) -> str:
    again = sum(g.recompile is not None for g in log.graphs)
    launches = sum(g.launches for g in log.graphs)
    cells = [
        (f"{log.compile_s:.1f} s", "compiling", ""),
        (str(len(log.graphs)), "graphs", ""),
        (str(launches), "launches in them", ""),
        (str(again), "recompiles", "warning" if again else ""),
        (str(len(log.breaks)), "graph breaks", "warning" if log.breaks else ""),
    ]
    return '<ul class="counts">' + "".join(f'<li><b class="{c}">{n}</b>{w}</li>' for n, w, c in cells) + "</ul>"


def _timeline(log: CompileLog) -> str:
    if not any(graph.spans for graph in log.graphs):
        return "<p>No times were written down.</p>"
    begin = min(s.start_s for g in log.graphs for s in g.spans)
    end = max(s.start_s + s.seconds for g in log.graphs for s in g.spans)
    lanes = [
        f'<div class="lane"><span title="{escape(g.place)}">{g.number} {escape(g.function)} '
        f'<span class="faint">{g.kind.value}</span></span>{_bars(g.spans, begin, end, flat=True)}'
        f"<span>{g.seconds:.2f} s</span></div>"
        for g in log.graphs
    ]
    used = {span.phase for graph in log.graphs for span in graph.spans}
    legend = "".join(f'<li><i style="background:{c}"></i>{escape(w)}</li>' for w, c in _COLOURS.items() if w in used)
    return f'<div class="timeline" id="timeline">{"".join(lanes)}<ul class="legend">{legend}</ul></div>'


def _bars(spans: Sequence[Span], begin: float, end: float, *, flat: bool) -> str:
    """Spans as bars; flat: one row in which the innermost lies on top."""
    whole = max(end - begin, 1e-9)
    depth = 0 if flat else max((s.depth for s in spans), default=0)
    bars = []
    for span in sorted(spans, key=lambda s: s.depth):
        left, width = (span.start_s - begin) / whole * 100, max(span.seconds / whole * 100, 0.1)
        top = 0 if flat else span.depth * _ROW
        said = f"{span.phase}: {span.name}, {span.seconds:.3f} s"
        bars.append(
            f'<rect x="{left:.3f}%" y="{top}" width="{width:.3f}%" height="{_ROW - 4}" rx="2" '
            f'fill="{_COLOURS.get(span.phase, _COLOURS["other"])}"><title>{escape(said)}</title></rect>'
        )
    kind = "" if flat else ' class="flame"'
    return f'<svg{kind} height="{(depth + 1) * _ROW}" role="img" aria-label="timeline">{"".join(bars)}</svg>'


def _graph(graph: CompiledGraph) -> str:
    facts = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in graph_facts(graph))
    flame = ""
    if graph.spans:
        begin, end = graph.spans[0].start_s, max(s.start_s + s.seconds for s in graph.spans)
        flame = _bars(graph.spans, begin, end, flat=False)
    kernels = "".join(_kernel(kernel) for kernel in graph.kernels)
    mark = " is-warning" if graph.recompile else " is-info"
    head = (
        f"<b>{graph.number} {escape(graph.function)}</b> {graph.kind.value} · {graph.seconds:.2f} s · "
        f"{kernels_text(graph)} · cache {graph.cache.value}"
    )
    return f"""<details class="finding{mark}" id="graph-{graph.number}"><summary>{head}</summary><div>
<p class="faint">{escape(graph.place)}</p><dl>{facts}</dl>{flame}
{"<h3>Kernels</h3>" + kernels if kernels else ""}</div></details>"""


def _kernel(kernel: Kernel) -> str:
    places = "".join(f"<div><code>{escape(place)}</code></div>" for place in kernel.places)
    said = f"{kernel.kind}, ×{kernel.launches}, {', '.join(kernel.operators) or 'no operator named'}"
    code = f"<pre>{escape(kernel.code)}</pre>" if kernel.code else ""
    return f"""<details class="kernel"><summary><code>{escape(kernel.name)}</code> <span class="faint">{escape(said)}</span></summary>
{places}{code}</details>"""


def _break(found: GraphBreak) -> str:
    minus = "".join(f'<div class="minus">- {escape(line)}</div>' for line in found.before.splitlines())
    plus = "".join(f'<div class="plus">+ {escape(line)}</div>' for line in found.after.splitlines())
    code = f"<pre>{minus}{plus}</pre>" if minus and plus else ""
    weight = "the compile fails" if found.fatal else "nothing of the function is compiled" if found.whole_frame else ""
    return f"""<details class="finding is-warning" open><summary><b>{escape(found.place)}</b> in {escape(found.function)} {escape(weight)}</summary><div>
<pre>{escape(found.line)}</pre><dl><dt>cause</dt><dd>{escape(found.cause)}</dd><dt>fix</dt><dd>{escape(found.fix)}{code}</dd>
<dt>torch says</dt><dd>{escape(found.id)} {escape(found.kind)}<details><summary>in full</summary><pre>{escape(found.said)}</pre></details></dd></dl></div></details>"""


def _uncompiled(frames: Sequence[UncompiledFrame]) -> str:
    rows = [
        ("", [escape(f.function), f"<code>{escape(f.place)}</code>", f"{f.seconds:.2f} s", escape(f.why)])
        for f in frames
    ]
    return table("uncompiled", ["function", "place", "looked at for", "why"], rows)


def _operators(graph: CompiledGraph) -> str:
    return escape(", ".join(f"{name} ×{n}" if n > 1 else name for name, n in graph.operators.items()))
