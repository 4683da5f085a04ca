"""Compile logs and graph breaks as text for a terminal."""

from collections.abc import Iterator, Sequence

from rocsolid.model.codec import dumps, encode
from rocsolid.model.compile_log import (
    BREAKS_SCHEMA,
    COMPILES_SCHEMA,
    BreakReport,
    Cache,
    CompiledGraph,
    CompileLog,
    GraphBreak,
    Kernel,
    UncompiledFrame,
)
from rocsolid.report.terminal import Terminal
from rocsolid.version import __version__

_MOST_OPERATORS = 8
_MOST_KERNELS = 12


def compiles_json(log: CompileLog, *, code: bool = False) -> str:
    """The whole log; the programs themselves only on request."""
    data = encode(log)
    if not code:
        for graph in data["graphs"]:
            for kernel in graph["kernels"]:
                kernel["code"] = ""
    return dumps(COMPILES_SCHEMA, rocsolid=__version__, **data)


def breaks_json(report: BreakReport) -> str:
    """The whole report, without the programs."""
    data = encode(report)
    for graph in data["graphs"]:
        for kernel in graph["kernels"]:
            kernel["code"] = ""
    return dumps(BREAKS_SCHEMA, rocsolid=__version__, **data)


def compiles_text(log: CompileLog, terminal: Terminal, *, code: bool = False) -> str:
    """Every graph in a few lines, worst news first."""
    blocks = [compiles_headline(log, terminal)]
    blocks += [_graph(graph, terminal, code=code) for graph in log.graphs]
    if log.uncompiled:
        blocks.append(_left_to_python(log.uncompiled, terminal))
    blocks += [_break(found, terminal) for found in log.breaks]
    return "\n\n".join(blocks) + "\n"


def compiles_headline(log: CompileLog, terminal: Terminal) -> str:
    """One line: how many graphs, how long, from which cache."""
    hits = sum(g.cache is Cache.HIT for g in log.graphs)
    again = sum(g.recompile is not None for g in log.graphs)
    parts = [
        _count(len(log.graphs), "graph"),
        f"{log.compile_s:.1f} s of compiling",
        f"{hits} from the cache" if hits else "",
        _count(again, "recompile") if again else "",
        _count(len(log.breaks), "graph break") if log.breaks else "",
        f"torch {log.torch}" if log.torch else "",
    ]
    return terminal.paint(" · ".join(p for p in parts if p), "bold")


def _graph(graph: CompiledGraph, terminal: Terminal, *, code: bool) -> str:
    head = f"graph {graph.number} {graph.kind.value} {terminal.paint(graph.function, 'bold')}  {graph.seconds:.2f} s"
    lines = [head + terminal.paint(f"  {graph.place}", "dim")]
    for label, text in graph_facts(graph):
        lines.append(terminal.wrap(text, indent=" " * 13, first=f"  {terminal.paint(f'{label:<10}', 'dim')} "))
    if code:
        lines += [line for kernel in graph.kernels if kernel.code for line in _code(kernel, terminal)]
    return "\n".join(lines)


def graph_facts(graph: CompiledGraph) -> Iterator[tuple[str, str]]:
    """Label and text of what is worth a line; text and HTML show the same."""
    if graph.recompile:
        yield "again", f"{graph.recompile.cause}: {graph.recompile.guard} (the compile {graph.recompile.against})"
        yield "fix", graph.recompile.fix
    if graph.called_from:
        yield "called at", graph.called_from
    if graph.phases:
        yield "time", ", ".join(f"{name} {seconds:.2f} s" for name, seconds in graph.phases.items() if seconds >= 0.005)  # noqa: PLR2004 - what rounds to 0.01
    shown = [f"{name} ×{n}" if n > 1 else name for name, n in graph.operators.items()]
    more = f" and {len(shown) - _MOST_OPERATORS} more" if len(shown) > _MOST_OPERATORS else ""
    yield "operators", f"{graph.nodes} nodes: {', '.join(shown[:_MOST_OPERATORS])}{more}"
    if graph.kernels:
        yield "kernels", kernels_text(graph)
    if graph.phases:
        yield "cache", graph.cache.value + (f": {graph.cache_why}" if graph.cache_why else "")
    if graph.phases and graph.device_graph:
        yield "graph", f"device graph {graph.device_graph}"
    if graph.autotuning_s:
        yield "autotuning", f"{graph.autotuning_s:.1f} s"
    if not graph.finished:
        yield "unfinished", "the compile did not come to an end"


def kernels_text(graph: CompiledGraph) -> str:
    """How many of each kind, and how much was fused."""
    kinds: dict[str, int] = {}
    for kernel in graph.kernels:
        kinds[kernel.kind] = kinds.get(kernel.kind, 0) + kernel.launches
    said = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    fused = ""
    if graph.nodes_before_fusion:
        fused = f", {graph.nodes_before_fusion} nodes before fusion"
    return f"{_count(graph.launches, 'launch', 'es')} a call ({said}){fused}"


def _code(kernel: Kernel, terminal: Terminal) -> Iterator[str]:
    yield ""
    yield f"  {terminal.paint(kernel.name, 'bold')} ({kernel.kind}, {', '.join(kernel.operators)})"
    for place in kernel.places:
        yield f"    {terminal.paint(place, 'dim')}"
    yield from (terminal.paint(f"    {line}", "cyan") for line in kernel.code.splitlines())


def _left_to_python(frames: Sequence[UncompiledFrame], terminal: Terminal) -> str:
    lines = [terminal.paint("left to Python", "bold")]
    lines += [
        terminal.wrap(f"{frame.function} {frame.place}: {frame.why}", indent="    ", first="  ")
        for frame in frames[:_MOST_KERNELS]
    ]
    if len(frames) > _MOST_KERNELS:
        lines.append(f"  and {len(frames) - _MOST_KERNELS} more")
    return "\n".join(lines)


def breaks_text(report: BreakReport, terminal: Terminal) -> str:
    """Every break with its fix, then what the call falls into."""
    broken, graphs = len(report.breaks), len(report.graphs)
    style = "yellow" if broken else "green"
    head = (
        f"{report.function}: {_count(broken, 'graph break') if broken else 'no graph break'}, {_count(graphs, 'graph')}"
    )
    blocks = [terminal.paint(head, style, "bold") + terminal.paint(f"  torch {report.torch}", "dim")]
    blocks += [_break(found, terminal) for found in report.breaks]
    if report.graphs:
        blocks.append("\n".join(_share(graph, terminal) for graph in report.graphs))
    if report.uncompiled:
        blocks.append(_left_to_python(report.uncompiled, terminal))
    return "\n\n".join(blocks) + "\n"


def _break(found: GraphBreak, terminal: Terminal) -> str:
    weight = "the compile fails" if found.fatal else "nothing of the function is compiled" if found.whole_frame else ""
    times = f"met {found.times} times" if found.times > 1 else ""
    notes = ", ".join(filter(None, (weight, times)))
    lines = [
        f"{terminal.paint('BREAK', 'yellow', 'bold')} {found.place} in {found.function}"
        + (f"  ({notes})" if notes else "")
    ]
    if found.line:
        lines.append(terminal.paint(f"    {found.line}", "cyan"))
    lines.append(terminal.wrap(found.cause, indent=" " * 9, first="  cause  "))
    lines.append(terminal.wrap(found.fix, indent=" " * 9, first="  fix   "))
    if found.before and found.after:
        lines += [terminal.paint(f"           - {line}", "red") for line in found.before.splitlines()]
        lines += [terminal.paint(f"           + {line}", "green") for line in found.after.splitlines()]
    lines.append(terminal.paint(f"  torch  {found.id} {found.kind}", "dim"))
    return "\n".join(lines)


def _share(graph: CompiledGraph, terminal: Terminal) -> str:
    cost = (
        _count(graph.launches, "launch", "es") if graph.kernels else _count(sum(graph.operators.values()), "operator")
    )
    return f"  graph {graph.number}: {cost} a call" + terminal.paint(f"  {graph.function} {graph.place}", "dim")


def _count(number: int, word: str, plural: str = "s") -> str:
    return f"{number} {word}{'' if number == 1 else plural}"
