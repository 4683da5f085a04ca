"""Matches the compiled regions of a trace with a TORCH_TRACE log: function, line and reason of each region."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rocsolid.model.compile_log import CompiledGraph, CompileLog, GraphBreak, GraphKind
from rocsolid.model.trace import CompileLogMatch, HostRegion, TraceFile

_REGION: Final = re.compile(r"Torch-Compiled Region: (?:!\d+/)?(\d+/\d+)")
_RESUMED_FUNCTION: Final = re.compile(r" \(resumed at line \d+\)$")


def add_compile_log(file: TraceFile, log: CompileLog, source: str) -> TraceFile:
    """Add the function and line of each compiled region, and the graph breaks in functions that the trace shows."""
    by_id: dict[str, list[CompiledGraph]] = {}
    for graph in log.graphs:
        if graph.kind is not GraphKind.BACKWARD:
            by_id.setdefault(graph.compile_id, []).append(graph)
    regions = tuple(_with_source(region, by_id, log.breaks) for region in file.regions)
    ids = [(region, compile_id(region.name)) for region in regions]  # an empty id for other annotations
    graphs = [graph for _, region_id in ids if region_id for graph in by_id.get(region_id, ())]
    breaks = tuple(graph_break for graph_break in log.breaks if _is_in_trace(graph_break, graphs))
    match = CompileLogMatch(
        source=source,
        torch=log.torch,
        matched_regions=sum(bool(region.function) for region, _ in ids),
        unmatched_regions=tuple(region.name for region, region_id in ids if region_id and not region.function),
        breaks=breaks,
        other_breaks=len(log.breaks) - len(breaks),
    )
    return replace(file, regions=regions, compile_log=match)


def compile_id(region: str) -> str:
    """Return the compile id (such as `0/1`) in the name of a compiled region; empty for other annotations."""
    found = _REGION.match(region)
    return found[1] if found else ""


def graphs_in_trace(file: TraceFile, log: CompileLog) -> tuple[CompiledGraph, ...]:
    """Return the compiled graphs of the log that run in the trace."""
    ids = {compile_id(region.name) for region in file.regions} - {""}
    return tuple(graph for graph in log.graphs if graph.compile_id in ids)


def _with_source(region: HostRegion, by_id: dict[str, list[CompiledGraph]], breaks: Iterable[GraphBreak]) -> HostRegion:
    """Add function, line and reason of a compiled region.

    Several processes can use the same compile id, and so can one process after a reset of Dynamo. Then all functions
    with this id are listed.
    """
    graphs = by_id.get(compile_id(region.name), [])
    if not graphs:
        return region
    locations = list(dict.fromkeys(graph.location for graph in graphs))
    causes = [graph.recompile.cause for graph in graphs if graph.recompile]
    break_reasons = [
        f"graph break at {graph_break.location}: {graph_break.cause}"
        for graph_break in breaks
        if graph_break.location in locations and any(_RESUMED_FUNCTION.search(graph.function) for graph in graphs)
    ]
    return replace(
        region,
        function=" or ".join(dict.fromkeys(graph.function for graph in graphs)),
        location=" or ".join(locations),
        reason="; ".join(dict.fromkeys((*break_reasons, *(f"recompiled: {cause}" for cause in causes)))),
    )


def _is_in_trace(graph_break: GraphBreak, graphs: Iterable[CompiledGraph]) -> bool:
    """Return whether a graph break is in one of the graphs, or in a function that one of them calls."""
    file = graph_break.location.rpartition(":")[0]
    for graph in graphs:
        if graph.location in (graph_break.location, *graph_break.stack):
            return True
        same_function = _RESUMED_FUNCTION.sub("", graph.function) == graph_break.function
        if same_function and graph.location.rpartition(":")[0] == file:
            return True
    return False
