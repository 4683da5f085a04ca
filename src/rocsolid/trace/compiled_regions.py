"""Compiled regions of a trace, joined to what the compiler said of them: the function, its line, and why it broke."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rocsolid.model.compile_log import CompiledGraph, CompileLog, GraphBreak, GraphKind
from rocsolid.model.trace import CompileJoin, Region, TraceFile

_REGION: Final = re.compile(r"Torch-Compiled Region: (?:!\d+/)?(\d+/\d+)")
_RESUMED: Final = re.compile(r" \(resumed at line \d+\)$")


def with_compiles(file: TraceFile, log: CompileLog, source: str) -> TraceFile:
    """The answers, each compiled region with its function and line, and the breaks of functions that the trace shows."""
    by_id: dict[str, list[CompiledGraph]] = {}
    for graph in log.graphs:
        if graph.kind is not GraphKind.BACKWARD:
            by_id.setdefault(graph.compile_id, []).append(graph)
    regions = tuple(_told(region, by_id, log.breaks) for region in file.regions)
    ids = [(region, compile_id(region.name)) for region in regions]
    seen = [graph for _, name in ids if name for graph in by_id.get(name, ())]
    breaks = tuple(found for found in log.breaks if _shown(found, seen))
    join = CompileJoin(
        source=source,
        torch=log.torch,
        matched=sum(bool(region.function) for region, _ in ids),
        unmatched=tuple(region.name for region, name in ids if name and not region.function),
        breaks=breaks,
        other_breaks=len(log.breaks) - len(breaks),
    )
    return replace(file, regions=regions, compiles=join)


def compile_id(region: str) -> str:
    """Torch's number of the compile that made a region; empty for other annotations."""
    found = _REGION.match(region)
    return found[1] if found else ""


def graphs_shown(file: TraceFile, log: CompileLog) -> tuple[CompiledGraph, ...]:
    """The graphs that the trace shows at work."""
    ids = {compile_id(region.name) for region in file.regions} - {""}
    return tuple(graph for graph in log.graphs if graph.compile_id in ids)


def _told(region: Region, by_id: dict[str, list[CompiledGraph]], breaks: Iterable[GraphBreak]) -> Region:
    """Processes number their compiles alike, and so does one after a reset: where they differ, all are named."""
    graphs = by_id.get(compile_id(region.name), [])
    if not graphs:
        return region
    places = list(dict.fromkeys(graph.location for graph in graphs))
    whys = [graph.recompile.cause for graph in graphs if graph.recompile]
    broken = [
        f"graph break at {found.location}: {found.cause}"
        for found in breaks
        if found.location in places and any(_RESUMED.search(graph.function) for graph in graphs)
    ]
    return replace(
        region,
        function=" or ".join(dict.fromkeys(graph.function for graph in graphs)),
        place=" or ".join(places),
        why="; ".join(dict.fromkeys((*broken, *(f"compiled again: {why}" for why in whys)))),
    )


def _shown(found: GraphBreak, graphs: Iterable[CompiledGraph]) -> bool:
    """Whether a break is one of a function at work: at its line, or on the way down from it."""
    file = found.location.rpartition(":")[0]
    for graph in graphs:
        if graph.location in (found.location, *found.stack):
            return True
        same = _RESUMED.sub("", graph.function) == found.function
        if same and graph.location.rpartition(":")[0] == file:
            return True
    return False
