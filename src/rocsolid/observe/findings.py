"""Graph breaks and recompiles as findings, for CI and for editors."""

from collections.abc import Iterable

from rocsolid.model.compile_log import CompiledGraph, GraphBreak
from rocsolid.model.finding import Finding, Severity
from rocsolid.rules.observed import graph_break, recompiled


def break_findings(breaks: Iterable[GraphBreak], graphs: int = 0) -> list[Finding]:
    """One finding for each break."""
    return [_of_break(found, graphs) for found in breaks]


def recompile_findings(graphs: Iterable[CompiledGraph]) -> list[Finding]:
    """One finding for each compile that was not the first of its function."""
    return [
        recompiled.RULE.found(
            graph.function,
            location=graph.recompile.place,
            function=graph.function,
            seconds=f"{graph.seconds:.1f}",
            reason=graph.recompile.cause,
            guard=graph.recompile.guard,
            fix=graph.recompile.fix,
        )
        for graph in graphs
        if graph.recompile
    ]


def _of_break(found: GraphBreak, graphs: int) -> Finding:
    if found.fatal:
        cost = "The compile fails, and the call with it."
    elif found.whole_frame:
        cost = "Nothing of the function is compiled."
    else:
        cost = f"The call falls into {graphs} graphs." if graphs else "The call falls into more graphs than one."
    return graph_break.RULE.found(
        found.id or found.kind,
        severity=Severity.CRITICAL if found.fatal else None,
        location=found.place,
        function=found.function,
        reason=found.cause,
        id=found.id,
        kind=found.kind,
        cost=cost,
        fix=found.fix if not found.after else f"{found.fix}: {found.after.partition(chr(10))[0].strip()}",
    )
