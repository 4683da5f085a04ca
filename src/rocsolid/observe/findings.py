"""Graph breaks and recompiles as findings, for CI and for editors."""

from collections.abc import Iterable
from typing import Any

from rocsolid.model.code_line import CodeLine
from rocsolid.model.compile_log import CompiledGraph, GraphBreak, group_recompiles
from rocsolid.model.finding import Finding, Severity
from rocsolid.rules.observed import graph_break, recompiled


def break_findings(breaks: Iterable[GraphBreak], graphs: int = 0) -> list[Finding]:
    """One finding per graph break."""
    return [_break_finding(found, graphs) for found in breaks]


def recompile_findings(graphs: Iterable[CompiledGraph]) -> list[Finding]:
    """One finding per function and cause."""
    return [
        recompiled.RULE.found(
            group.function,
            location=group.first.location,
            function=group.function,
            times="" if len(group.graphs) == 1 else f"{len(group.graphs)} times ",
            seconds=f"{group.seconds:.1f}",
            reason=group.change,
            guard=group.first.guard,
            cause_of_recompile=group.first.cause,
            **_code_facts(group.first.code),
            fix=group.first.fix,
        )
        for group in group_recompiles(graphs)
    ]


def _break_finding(found: GraphBreak, graphs: int) -> Finding:
    if found.fatal:
        cost = "The compile fails, so the call fails."
    elif found.effect:
        cost = f"{found.effect[0].upper()}{found.effect[1:]}; it runs in eager."
    else:
        cost = f"The call is split into {graphs or 'several'} compiled graphs."
    return graph_break.RULE.found(
        found.id or found.kind,
        severity=Severity.CRITICAL if found.fatal else None,
        location=found.location,
        function=found.function,
        reason=found.cause,
        id=found.id,
        kind=found.kind,
        cost=cost,
        fix=found.fix,
        **_code_facts(found.code),
    )


def _code_facts(code: CodeLine) -> dict[str, Any]:
    """The source line and the column of the expression, as lint findings have them."""
    return {"text": code.text.strip(), "column": code.start + 1} if code.text else {}
