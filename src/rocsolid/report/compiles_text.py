"""Compile logs and graph breaks as text for a terminal, and as JSON."""

from collections.abc import Iterator, Sequence

from rocsolid.model.codec import dumps, encode
from rocsolid.model.compile_log import (
    BREAKS_SCHEMA,
    COMPILES_SCHEMA,
    BreakReport,
    CacheResult,
    CompiledGraph,
    CompiledKernel,
    CompileLog,
    GraphBreak,
    UncompiledFrame,
    count_breaks,
    short_location,
)
from rocsolid.report.terminal import Terminal
from rocsolid.version import __version__

_MAX_OPERATORS = 8
_MAX_UNCOMPILED = 12


def compiles_json(log: CompileLog, *, code: bool = False) -> str:
    """The whole log; with `code`, also the generated kernels."""
    data = encode(log)
    if not code:
        for graph in data["graphs"]:
            for kernel in graph["kernels"]:
                kernel["code"] = ""
    return dumps(COMPILES_SCHEMA, rocsolid=__version__, **data)


def breaks_json(report: BreakReport) -> str:
    """The whole report, without the generated kernels."""
    data = encode(report)
    for graph in data["graphs"]:
        for kernel in graph["kernels"]:
            kernel["code"] = ""
    return dumps(BREAKS_SCHEMA, rocsolid=__version__, **data)


def compiles_text(log: CompileLog, terminal: Terminal, *, code: bool = False) -> str:
    """The recompiles by cause, every graph, what was not compiled, and every graph break."""
    blocks = [compiles_headline(log, terminal)]
    blocks += [_paint_message(group.lines(), terminal) for group in log.recompiles]
    blocks += [_graph(graph, terminal, code=code) for graph in log.graphs]
    if log.uncompiled:
        blocks.append(_not_compiled(log.uncompiled, terminal))
    blocks += [_break(found, terminal) for found in log.breaks]
    return "\n\n".join(blocks) + "\n"


def compiles_headline(log: CompileLog, terminal: Terminal) -> str:
    """One line: number of graphs, compile time, cache hits, recompiles, graph breaks."""
    hits = sum(g.cache is CacheResult.HIT for g in log.graphs)
    recompiles = sum(g.recompile is not None for g in log.graphs)
    parts = [
        _count(len(log.graphs), "compiled graph"),
        f"{log.compile_s:.1f} s of compiling",
        f"{hits} from the cache" if hits else "",
        _count(recompiles, "recompile") if recompiles else "",
        count_breaks(log.breaks) if log.breaks else "",
        f"torch {log.torch}" if log.torch else "",
    ]
    return terminal.paint(" · ".join(p for p in parts if p), "bold")


def _graph(graph: CompiledGraph, terminal: Terminal, *, code: bool) -> str:
    head = (
        f"graph {graph.number} ({graph.kind.value}) of {terminal.paint(graph.function, 'bold')}  {graph.seconds:.2f} s"
    )
    lines = [head + terminal.paint(f"  {short_location(graph.location)}", "dim")]
    if graph.recompile:
        label = terminal.paint("recompile:", "yellow", "bold")
        lines.append(terminal.wrap(graph.recompile.change, indent="    ", first=f"  {label} "))
    for label, text in graph_facts(graph):
        lines.append(terminal.wrap(text, indent=" " * 13, first=f"  {terminal.paint(f'{label:<10}', 'dim')} "))
    if code:
        lines += [line for kernel in graph.kernels if kernel.code for line in _code(kernel, terminal)]
    return "\n".join(lines)


def graph_facts(graph: CompiledGraph) -> Iterator[tuple[str, str]]:
    """Label and text of each fact about a graph; text and HTML show the same."""
    if graph.called_from:
        yield "called at", short_location(graph.called_from)
    if graph.phases:
        yield "time", ", ".join(f"{name} {seconds:.2f} s" for name, seconds in graph.phases.items() if seconds >= 0.005)  # noqa: PLR2004 - smaller values would be shown as 0.00
    operators = [f"{name} ×{n}" if n > 1 else name for name, n in graph.operators.items()]
    more = f" and {len(operators) - _MAX_OPERATORS} more" if len(operators) > _MAX_OPERATORS else ""
    yield "operators", f"{graph.nodes} nodes: {', '.join(operators[:_MAX_OPERATORS])}{more}"
    if graph.kernels:
        yield "kernels", kernels_text(graph)
    if graph.phases:
        yield "cache", graph.cache.value + (f": {graph.cache_reason}" if graph.cache_reason else "")
    if graph.phases and graph.cuda_graph:
        yield "CUDA graph", graph.cuda_graph
    if graph.autotuning_s:
        yield "autotuning", f"{graph.autotuning_s:.1f} s"
    if not graph.finished:
        yield "unfinished", "the compile did not finish"


def kernels_text(graph: CompiledGraph) -> str:
    """`3 launches per call (2 triton, 1 extern), 5 nodes before fusion`."""
    kinds: dict[str, int] = {}
    for kernel in graph.kernels:
        kinds[kernel.kind] = kinds.get(kernel.kind, 0) + kernel.launches
    by_kind = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    before_fusion = f", {_count(graph.nodes_before_fusion, 'node')} before fusion" if graph.nodes_before_fusion else ""
    return f"{_count(graph.launches, 'launch', 'es')} per call ({by_kind}){before_fusion}"


def _code(kernel: CompiledKernel, terminal: Terminal) -> Iterator[str]:
    yield ""
    yield f"  {terminal.paint(kernel.name, 'bold')} ({kernel.kind}, {', '.join(kernel.operators)})"
    for location in kernel.locations:
        yield f"    {terminal.paint(short_location(location), 'dim')}"
    yield from (terminal.paint(f"    {line}", "cyan") for line in kernel.code.splitlines())


def _not_compiled(frames: Sequence[UncompiledFrame], terminal: Terminal) -> str:
    lines = [terminal.paint("not compiled (runs in eager)", "bold")]
    lines += [
        terminal.wrap(f"{frame.function} {short_location(frame.location)}: {frame.reason}", indent="    ", first="  ")
        for frame in frames[:_MAX_UNCOMPILED]
    ]
    if len(frames) > _MAX_UNCOMPILED:
        lines.append(f"  and {len(frames) - _MAX_UNCOMPILED} more")
    return "\n".join(lines)


def breaks_text(report: BreakReport, terminal: Terminal) -> str:
    """Every break with its fix, then a summary and the graphs that the call was split into."""
    blocks = [_break(found, terminal) for found in report.breaks]
    style = "yellow" if report.breaks else "green"
    lines = [terminal.paint(report.summary, style, "bold") + terminal.paint(f"  torch {report.torch}", "dim")]
    lines += [_graph_cost(graph, terminal) for graph in report.graphs]
    blocks.append("\n".join(lines))
    if report.uncompiled:
        blocks.append(_not_compiled(report.uncompiled, terminal))
    return "\n\n".join(blocks) + "\n"


def _break(found: GraphBreak, terminal: Terminal) -> str:
    return "\n".join(
        [_paint_message(found.lines(), terminal), terminal.paint(f"torch: {found.id} {found.kind}", "dim")]
    )


def _paint_message(lines: Sequence[str], terminal: Terminal) -> str:
    """Return a message with colours; text is wrapped, code is not."""
    painted = []
    for index, line in enumerate(lines):
        if line.startswith("  "):
            painted.append(terminal.paint(line, {"- ": "red", "+ ": "green"}.get(line[2:4], "cyan")))
        else:
            label, colon, text = line.partition(":")
            wrapped = terminal.wrap(line, indent="  ", first="")
            styles = ("yellow", "bold") if index == 0 else ("bold",)
            painted.append(terminal.paint(label + colon, *styles) + wrapped[len(label + colon) :] if text else line)
    return "\n".join(painted)


def _graph_cost(graph: CompiledGraph, terminal: Terminal) -> str:
    cost = (
        _count(graph.launches, "launch", "es") if graph.kernels else _count(sum(graph.operators.values()), "operator")
    )
    text = f"graph {graph.number} of {graph.function}: {cost} per call"
    return terminal.wrap(f"{text}, {short_location(graph.location)}", indent="    ", first="  ")


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"
