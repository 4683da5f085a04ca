"""Makes the log from the events: one entry a graph, nothing counted twice."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocsolid.catalog.breaks import find_break_cause
from rocsolid.catalog.recompiles import find_recompile_cause
from rocsolid.model.compile_event import (
    Began,
    Broke,
    Cached,
    Coded,
    Ended,
    Event,
    Lowered,
    Named,
    Summed,
    Timed,
    Traced,
)
from rocsolid.model.compile_log import (
    Cache,
    CompiledGraph,
    CompileLog,
    GraphBreak,
    GraphKind,
    Recompile,
    Span,
    UncompiledFrame,
)
from rocsolid.model.known_cause import KnownCause
from rocsolid.observe.break_message import break_id, code_line, parts_of
from rocsolid.observe.kernels import kernels_of, kind_of
from rocsolid.torchapi.user_frames import is_user_file

# What a person would call the things that torch times; the first that fits wins.
_PHASES: Final = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r".*_template_(autotuning|precompiling)|benchmark_.*|CachingAutotuner\..*|.*autotune.*", "autotuning"),
        (r"cudagraph.*|CUDAGraph.*|.*cudagraphify.*", "device graphs"),
        (r"async_compile\..*|compile_file|PyCodeCache\..*|StaticAutotuner.*|reload_kernel.*", "compiling kernels"),
        (r"Scheduler\.(__init__|fused_nodes|create_combo.*)", "fusing"),
        (
            r"Scheduler\.codegen|GraphLowering\.(codegen.*|compile_to.*)|code_gen|.*Wrapper.*generate.*",
            "generating code",
        ),
        (r"GraphLowering\.run", "lowering"),
        (r"_recursive_.*_passes|pass\..*|min_cut.*", "rewriting the graph"),
        (r"CacheBase.*|inductor_codecache.*|TritonBundler.*|.*[Cc]ache.*", "caches"),
        (r"inductor_compile|fx_codegen.*|compile_fx.*|additional_fake.*|entire_backward.*", "Inductor, other"),
        (r"backend_compile|create_aot.*|aot_.*|.*[Aa]ot.*", "deriving forward and backward"),
        (r"build_guards", "guards"),
        (r"dynamo|entire_frame.*|compile_attempt.*|bytecode_tracing|insert_deferred.*|gc", "tracing"),
    )
)
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.+?)_at_(\d+)")
_LEAST_SPAN_S: Final = 0.0005
_GUARD_STACK: Final = re.compile(r'File "([^"]+)", line (\d+)')
AUTOTUNING: Final = "autotuning"


def phase_word(name: str) -> str:
    """A thing that torch times, in plain words."""
    return next((word for pattern, word in _PHASES if pattern.fullmatch(name)), "other")


@dataclass
class _Side:
    """The forward or the backward half of a unit."""

    timed: list[Timed] = field(default_factory=list)
    lowered: list[Lowered] = field(default_factory=list)
    coded: list[Coded] = field(default_factory=list)
    cached: list[Cached] = field(default_factory=list)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass
class _Unit:
    began: Began | None = None
    ended: Ended | None = None
    compile_id: str = ""
    traced: list[Traced] = field(default_factory=list)
    broke: list[Broke] = field(default_factory=list)
    forward: _Side = field(default_factory=_Side)
    backward: _Side = field(default_factory=_Side)


def assemble(
    events: Iterable[Event], *, started_s: float, ended_s: float, started_at: str, torch: str, source: str = "live"
) -> CompileLog:
    """The log of everything in the events, in the order in which the compiles began."""
    units: dict[int, _Unit] = {}
    for event in events:
        _sort_in(units.setdefault(event.unit, _Unit()), event)
    graphs: list[CompiledGraph] = []
    uncompiled: list[UncompiledFrame] = []
    for unit in units.values():
        made = _graphs(unit, started_s, len(graphs))
        graphs += made
        if not made and (unit.forward.timed or unit.broke):
            uncompiled.append(_uncompiled(unit))
    return CompileLog(
        started_at=started_at,
        seconds=ended_s - started_s,
        torch=torch,
        source=source,
        graphs=tuple(graphs),
        breaks=breaks_of(b for unit in units.values() for b in unit.broke),
        uncompiled=tuple(uncompiled),
    )


def _sort_in(unit: _Unit, event: Event) -> None:
    side = unit.backward if getattr(event, "backward", False) else unit.forward
    kept: dict[type, list[Any]] = {
        Traced: unit.traced,
        Broke: unit.broke,
        Timed: side.timed,
        Lowered: side.lowered,
        Coded: side.coded,
        Cached: side.cached,
    }
    if type(event) in kept:
        kept[type(event)].append(event)
        return
    match event:
        case Began():
            unit.began = event
        case Ended():
            unit.ended = event
        case Named():
            unit.compile_id = event.compile_id
        case Summed():
            side.facts = event.facts


def _graphs(unit: _Unit, started_s: float, before: int) -> list[CompiledGraph]:
    """The graphs of one frame: the forward or inference graph, and the backward graph when it was compiled too."""
    found = []
    if any(traced.operators for traced in unit.traced) or unit.forward.coded:
        found.append(_graph(unit, unit.forward, GraphKind.FORWARD, started_s, before + 1))
    if unit.backward.coded or unit.backward.lowered:
        found.append(_graph(unit, unit.backward, GraphKind.BACKWARD, started_s, before + 1 + len(found)))
    return found


def _graph(unit: _Unit, side: _Side, kind: GraphKind, started_s: float, number: int) -> CompiledGraph:
    backward = kind is GraphKind.BACKWARD
    traced = [] if backward else unit.traced
    operators = _sum(lowered.operators for lowered in side.lowered) or _sum(t.operators for t in traced)
    places = {name: place for t in unit.traced for name, place in t.places.items()}
    said = kind_of(side.coded[0].source) if side.coded else GraphKind.INFERENCE if not unit.backward.coded else None
    phases = _phases(side.timed)
    cache, why = _cache(side, unit.forward)
    began = unit.began
    begin_s = min((t.start_s for t in side.timed), default=began.at_s if began else started_s)
    reason = side.facts.get("recompile_reason")
    return CompiledGraph(
        number=number,
        compile_id=unit.compile_id,
        kind=said or kind,
        function=_called(began) if began else str(side.facts.get("co_name", "")),
        place=f"{began.file}:{began.line}" if began else "",
        called_from=began.called_from if began else "",
        thread=side.timed[0].thread if side.timed else began.thread if began else "",
        start_s=begin_s - started_s,
        seconds=sum(phases.values()),
        phases=phases,
        spans=_spans(side.timed, started_s),
        nodes=sum(lowered.nodes for lowered in side.lowered) if backward else sum(t.nodes for t in traced),
        inputs=sum(t.inputs for t in traced),
        operators=operators,
        kernels=tuple(k for coded in side.coded for k in kernels_of(coded.source, places)),
        nodes_before_fusion=sum(coded.nodes_before_fusion for coded in side.coded),
        cache=cache,
        cache_why=why,
        recompile=recompile_of(str(reason), _call_of(began)) if reason else None,
        device_graph=_device_graph(side),
        autotuning_s=phases.get(AUTOTUNING, 0.0),
        finished=bool(side.coded or (unit.ended and unit.ended.compiled)),
    )


def _phases(timed: Iterable[Timed]) -> dict[str, float]:
    """Seconds by phase, longest first. Each moment counts once: for the innermost thing that was timed."""
    seconds: dict[str, float] = {}
    for event in timed:
        word = phase_word(event.name)
        seconds[word] = seconds.get(word, 0.0) + event.own_s
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _spans(timed: Iterable[Timed], started_s: float) -> tuple[Span, ...]:
    long = sorted((t for t in timed if t.end_s - t.start_s >= _LEAST_SPAN_S), key=lambda t: (t.start_s, t.depth))
    return tuple(
        Span(
            name=t.name,
            phase=phase_word(t.name),
            start_s=t.start_s - started_s,
            seconds=t.end_s - t.start_s,
            depth=t.depth,
        )
        for t in long
    )


def _cache(side: _Side, forward: _Side) -> tuple[Cache, str]:
    """Whole frames are looked up first, then single graphs; a hit in either is a hit."""
    asked = [c for c in side.cached if c.cache == "fx"]
    whole = [c for c in forward.cached if c.cache == "autograd"]
    if any(c.state == "hit" for c in (*asked, *whole)) and not side.lowered:
        return Cache.HIT, ""
    for answer in (*asked, *whole):
        if answer.state == "bypass":
            return Cache.BYPASS, answer.why
    return (Cache.MISS, "") if any(c.state == "miss" for c in (*asked, *whole)) else (Cache.OFF, "")


def _device_graph(side: _Side) -> str:
    if any(phase_word(t.name) == "device graphs" for t in side.timed):
        return "captured"
    refused = side.facts.get("cudagraph_skip_reason") or next((c.graphs_refused for c in side.coded), "")
    if refused:
        why = str(refused).strip().rstrip(":").removeprefix("skipping cudagraphs due to ")
        return f"skipped: {why}"
    return "asked for" if any(c.graphs_wanted for c in side.coded) else "not asked for"


def _uncompiled(unit: _Unit) -> UncompiledFrame:
    began, facts = unit.began, unit.forward.facts
    why = str(facts.get("fail_reason") or (unit.ended.error if unit.ended else "")).strip()
    if unit.broke:
        why = unit.broke[-1].kind
    return UncompiledFrame(
        function=_called(began) if began else str(facts.get("co_name", "")),
        place=f"{began.file}:{began.line}" if began else "",
        seconds=sum(t.own_s for t in unit.forward.timed),
        why=why.partition("\n")[0] or "no tensor operation in it",
    )


def breaks_of(broken: Iterable[Broke]) -> tuple[GraphBreak, ...]:
    """Graph breaks with cause and fix; the same one met again is counted, not repeated."""
    found: dict[tuple[str, str], list[Broke]] = {}
    for broke in broken:
        found.setdefault((broke.kind, broke.frames[-1]), []).append(broke)
    return tuple(_graph_break(same[0], len(same)) for same in found.values())


def _graph_break(broke: Broke, times: int) -> GraphBreak:
    said = parts_of(broke.message)
    known = break_id(broke.kind, broke.message)
    place = users_place(broke.frames)
    line = code_line(place)
    fix = find_break_cause(broke.kind, f"{said.context}\n{said.explanation}\n{said.exception}", line)
    return GraphBreak(
        id=known,
        kind=broke.kind,
        place=place,
        function=shown_name(broke.function),
        line=line,
        cause=fix.cause if fix else said.explanation or broke.kind,
        fix=fix.fix if fix else " ".join(said.hints) or "see torch's own page of this break",
        before=fix.before if fix else "",
        after=fix.after if fix else "",
        said=broke.message,
        stack=broke.frames,
        whole_frame=broke.whole_frame,
        fatal=broke.fatal,
        times=times,
    )


def _call_of(began: Began | None) -> str:
    """The line of the call; that of the function where the call was not the user's own."""
    return (began.called_from or f"{began.file}:{began.line}") if began else ""


def _called(began: Began) -> str:
    """A function as a person knows it; a module is called through a function of torch's."""
    return "a module" if began.file.endswith("_dynamo/external_utils.py") else shown_name(began.function)


def shown_name(function: str) -> str:
    """Without the functions around it; what torch makes for the rest after a break says so."""
    function = function.rpartition(".<locals>.")[2]
    return _RESUMED.sub(r"\1 (from line \2 on)", function)


def users_place(frames: tuple[str, ...]) -> str:
    """The innermost line that is the user's own; the innermost of all where none is."""
    own = [place for place in frames if is_user_file(place.rpartition(":")[0])]
    return own[-1] if own else frames[-1]


def recompile_of(reason: str, called_from: str = "") -> Recompile:
    """Torch's reason, such as `0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5`, taken apart.

    A guard on a value names the line that used it; one on a tensor names none, and then the line of the call is what to look at.
    """
    against, colon, rest = reason.partition(": ")
    first = (rest if colon else reason).partition("\n")[0]
    guard, _, comment = first.partition("  # ")
    hint = comment[comment.find("HINT:") :] if "HINT:" in comment else ""
    places = _GUARD_STACK.findall(reason)
    return Recompile(
        against=against if colon else "",
        guard=guard.strip(),
        place=f"{places[-1][0]}:{places[-1][1]}" if places else called_from,
        **_words(find_recompile_cause(f"{guard.strip()} {hint}".strip())),
    )


def _words(fix: KnownCause) -> dict[str, str]:
    return {"cause": fix.cause, "fix": fix.fix, "before": fix.before, "after": fix.after}


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
