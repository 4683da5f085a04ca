"""Builds the compile log from compile events.

The log has one record per graph. Each second of compile time is counted for one graph only.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocsolid.model.compile_event import (
    BreakReported,
    CacheLookup,
    CodeGenerated,
    CompileEnded,
    CompileEvent,
    CompileIdAssigned,
    CompileStarted,
    GraphTraced,
    LoweringStarted,
    MetricsReported,
    PhaseTimed,
)
from rocsolid.model.compile_log import (
    CacheResult,
    CompiledGraph,
    CompileLog,
    CompileSpan,
    GraphBreak,
    GraphKind,
    UncompiledFrame,
)
from rocsolid.observe.break_message import display_name, first_break, graph_break
from rocsolid.observe.kernels import graph_kind, read_kernels
from rocsolid.observe.recompile_message import recompile_from_reason

AUTOTUNING: Final = "autotuning"
CUDA_GRAPHS: Final = "CUDA graphs"
# Groups of the phases that torch times, by name; the first matching pattern is used.
_PHASES: Final = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        (r".*_template_(autotuning|precompiling)|benchmark_.*|CachingAutotuner\..*|.*autotune.*", AUTOTUNING),
        (r"cudagraph.*|CUDAGraph.*|.*cudagraphify.*", CUDA_GRAPHS),
        (r"async_compile\..*|compile_file|PyCodeCache\..*|StaticAutotuner.*|reload_kernel.*", "kernel compilation"),
        (r"Scheduler\.(__init__|fused_nodes|create_combo.*)", "fusion"),
        (
            r"Scheduler\.codegen|GraphLowering\.(codegen.*|compile_to.*)|code_gen|.*Wrapper.*generate.*",
            "code generation",
        ),
        (r"GraphLowering\.run", "lowering"),
        (r"_recursive_.*_passes|pass\..*|min_cut.*", "FX passes"),
        (r"CacheBase.*|inductor_codecache.*|TritonBundler.*|.*[Cc]ache.*", "cache"),
        (r"inductor_compile|fx_codegen.*|compile_fx.*|additional_fake.*|entire_backward.*", "Inductor (other)"),
        (r"backend_compile|create_aot.*|aot_.*|.*[Aa]ot.*", "AOTAutograd"),
        (r"build_guards", "guards"),
        (r"dynamo|entire_frame.*|compile_attempt.*|bytecode_tracing|insert_deferred.*|gc", "Dynamo tracing"),
    )
)
_MIN_SPAN_S: Final = 0.0005  # shorter spans are not shown in the timeline


def phase_group(name: str) -> str:
    """The group of a phase that torch times, such as "autotuning"; "other" for an unknown one."""
    return next((phase for pattern, phase in _PHASES if pattern.fullmatch(name)), "other")


@dataclass
class _PassEvents:
    """The events of the forward or of the backward pass of one compiled frame."""

    phases: list[PhaseTimed] = field(default_factory=list)
    lowerings: list[LoweringStarted] = field(default_factory=list)
    code: list[CodeGenerated] = field(default_factory=list)
    lookups: list[CacheLookup] = field(default_factory=list)
    metrics: Mapping[str, object] = field(default_factory=dict)


@dataclass
class _FrameEvents:
    """All events of one unit: one frame that Dynamo compiles, with its backward graph (see `model.compile_event`)."""

    started: CompileStarted | None = None
    ended: CompileEnded | None = None
    compile_id: str = ""
    traced: list[GraphTraced] = field(default_factory=list)
    breaks: list[BreakReported] = field(default_factory=list)
    forward: _PassEvents = field(default_factory=_PassEvents)
    backward: _PassEvents = field(default_factory=_PassEvents)


def build_log(
    events: Iterable[CompileEvent],
    *,
    started_s: float,
    ended_s: float,
    started_at: str,
    torch: str,
    source: str = "live",
) -> CompileLog:
    """The log of all events, in the order in which the compiles started."""
    units: dict[int, _FrameEvents] = {}
    for event in events:
        _add(units.setdefault(event.unit, _FrameEvents()), event)
    graphs: list[CompiledGraph] = []
    uncompiled: list[UncompiledFrame] = []
    for unit in units.values():
        compiled = _graphs(unit, started_s, len(graphs) + 1)
        graphs += compiled
        if not compiled and (unit.forward.phases or unit.breaks):
            uncompiled.append(_uncompiled(unit))
    return CompileLog(
        started_at=started_at,
        seconds=ended_s - started_s,
        torch=torch,
        source=source,
        graphs=tuple(graphs),
        breaks=_graph_breaks(units),
        uncompiled=tuple(uncompiled),
    )


def _graph_breaks(units: Mapping[int, _FrameEvents]) -> tuple[GraphBreak, ...]:
    """Graph breaks with cause and fix; the same break at the same line is listed once, with a count."""
    functions = {number: unit.started.function for number, unit in units.items() if unit.started}
    found: dict[tuple[str, str], list[BreakReported]] = {}
    for report in (report for unit in units.values() for report in unit.breaks):
        found.setdefault((first_break(report).kind, report.frames[-1]), []).append(report)
    return tuple(graph_break(reports_of_one, functions) for reports_of_one in found.values())


def _add(unit: _FrameEvents, event: CompileEvent) -> None:
    pass_events = unit.backward if getattr(event, "backward", False) else unit.forward
    lists: dict[type, list[Any]] = {
        GraphTraced: unit.traced,
        BreakReported: unit.breaks,
        PhaseTimed: pass_events.phases,
        LoweringStarted: pass_events.lowerings,
        CodeGenerated: pass_events.code,
        CacheLookup: pass_events.lookups,
    }
    if type(event) in lists:
        lists[type(event)].append(event)
        return
    match event:
        case CompileStarted():
            unit.started = event
        case CompileEnded():
            unit.ended = event
        case CompileIdAssigned():
            unit.compile_id = event.compile_id
        case MetricsReported():
            pass_events.metrics = event.metrics


def _graphs(unit: _FrameEvents, started_s: float, first_number: int) -> list[CompiledGraph]:
    """The graphs of one frame: the forward or inference graph, and the backward graph if it was compiled too."""
    found = []
    if any(traced.operators for traced in unit.traced) or unit.forward.code:
        found.append(_graph(unit, unit.forward, GraphKind.FORWARD, started_s, first_number))
    if unit.backward.code or unit.backward.lowerings:
        found.append(_graph(unit, unit.backward, GraphKind.BACKWARD, started_s, first_number + len(found)))
    return found


def _graph(
    unit: _FrameEvents, pass_events: _PassEvents, kind: GraphKind, started_s: float, number: int
) -> CompiledGraph:
    backward = kind is GraphKind.BACKWARD
    traced = [] if backward else unit.traced
    operators = _sum(lowering.operators for lowering in pass_events.lowerings) or _sum(t.operators for t in traced)
    locations = {name: location for t in unit.traced for name, location in t.locations.items()}
    if pass_events.code:
        kind = graph_kind(pass_events.code[0].source) or kind
    elif not unit.backward.code:
        kind = GraphKind.INFERENCE
    phases = _phases(pass_events.phases)
    cache, cache_reason = _cache_result(pass_events, unit.forward)
    start = unit.started
    begin_s = min((t.start_s for t in pass_events.phases), default=start.at_s if start else started_s)
    reason = pass_events.metrics.get("recompile_reason")
    return CompiledGraph(
        number=number,
        compile_id=unit.compile_id,
        kind=kind,
        function=_function(start) if start else str(pass_events.metrics.get("co_name", "")),
        location=f"{start.file}:{start.line}" if start else "",
        called_from=start.called_from if start else "",
        thread=pass_events.phases[0].thread if pass_events.phases else start.thread if start else "",
        start_s=begin_s - started_s,
        seconds=sum(phases.values()),
        phases=phases,
        spans=_spans(pass_events.phases, started_s),
        nodes=sum(lowering.nodes for lowering in pass_events.lowerings) if backward else sum(t.nodes for t in traced),
        inputs=sum(t.inputs for t in traced),
        operators=operators,
        kernels=tuple(k for code in pass_events.code for k in read_kernels(code.source, locations)),
        nodes_before_fusion=sum(code.nodes_before_fusion for code in pass_events.code),
        cache=cache,
        cache_reason=cache_reason,
        recompile=recompile_from_reason(
            str(reason),
            called_from=_call_location(start),
            new_value=str(pass_events.metrics.get("recompile_new_value", "")),
        )
        if reason
        else None,
        cuda_graph=_cuda_graph(pass_events),
        autotuning_s=phases.get(AUTOTUNING, 0.0),
        finished=bool(pass_events.code or (unit.ended and unit.ended.compiled)),
    )


def _phases(timed: Iterable[PhaseTimed]) -> dict[str, float]:
    """Return the seconds of each group, longest first. Time inside several nested phases counts for the innermost."""
    seconds: dict[str, float] = {}
    for event in timed:
        phase = phase_group(event.name)
        seconds[phase] = seconds.get(phase, 0.0) + event.own_s
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _spans(timed: Iterable[PhaseTimed], started_s: float) -> tuple[CompileSpan, ...]:
    shown = sorted((t for t in timed if t.end_s - t.start_s >= _MIN_SPAN_S), key=lambda t: (t.start_s, t.depth))
    return tuple(
        CompileSpan(
            name=t.name,
            phase=phase_group(t.name),
            start_s=t.start_s - started_s,
            seconds=t.end_s - t.start_s,
            depth=t.depth,
        )
        for t in shown
    )


def _cache_result(pass_events: _PassEvents, forward: _PassEvents) -> tuple[CacheResult, str]:
    """Return the cache result. Torch looks up whole frames first, then single graphs; a hit in either counts as a hit."""
    lookups = [c for c in pass_events.lookups if c.cache == "fx"] + [
        c for c in forward.lookups if c.cache == "autograd"
    ]
    if any(c.state == "hit" for c in lookups) and not pass_events.lowerings:
        return CacheResult.HIT, ""
    for lookup in lookups:
        if lookup.state == "bypass":
            return CacheResult.BYPASS, lookup.reason
    return (CacheResult.MISS, "") if any(c.state == "miss" for c in lookups) else (CacheResult.OFF, "")


def _cuda_graph(pass_events: _PassEvents) -> str:
    if any(phase_group(t.name) == CUDA_GRAPHS for t in pass_events.phases):
        return "captured"
    skipped = pass_events.metrics.get("cudagraph_skip_reason") or next(
        (c.cuda_graph_skipped for c in pass_events.code), ""
    )
    if skipped:
        reason = str(skipped).strip().rstrip(":").removeprefix("skipping cudagraphs due to ")
        return f"skipped: {reason}"
    return "requested" if any(c.cuda_graph_requested for c in pass_events.code) else "not requested"


def _uncompiled(unit: _FrameEvents) -> UncompiledFrame:
    start, metrics = unit.started, unit.forward.metrics
    reason = str(metrics.get("fail_reason") or (unit.ended.error if unit.ended else "")).strip()
    if unit.breaks:
        reason = unit.breaks[-1].kind
    return UncompiledFrame(
        function=_function(start) if start else str(metrics.get("co_name", "")),
        location=f"{start.file}:{start.line}" if start else "",
        seconds=sum(t.own_s for t in unit.forward.phases),
        reason=reason.partition("\n")[0] or "it contains no tensor operation",
    )


def _call_location(start: CompileStarted | None) -> str:
    """Return `file:line` of the user's call, or of the function if the call is not in the user's code."""
    return (start.called_from or f"{start.file}:{start.line}") if start else ""


def _function(start: CompileStarted) -> str:
    """Return the name of the user's function. For a module, Dynamo compiles a function of torch that calls it."""
    return "a module" if start.file.endswith("_dynamo/external_utils.py") else display_name(start.function)


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
