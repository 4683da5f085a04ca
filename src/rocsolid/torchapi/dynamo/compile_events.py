"""Hears what torch's compiler does, from the moment somebody listens until nobody does.

Seven places of torch's are listened at: the timer that every phase goes through, the summary of each compile, the handing over of
a graph from Dynamo, its arrival in Inductor, the moment its program is ready (fresh or from a cache), the logging of a graph
break, and, through `compiling`, the beginning and end of each frame. Methods are replaced on their classes, so that functions
compiled before are heard too, in every thread, and `torch._dynamo.reset()`, which drops torch's own callbacks, changes nothing.
"""

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from rocsolid.model.compile_event import (
    CacheLookup,
    CodeGenerated,
    CompileEnded,
    CompileEvent,
    CompileIdAssigned,
    CompileStarted,
    GraphLowered,
    GraphTraced,
    MetricsReported,
    PhaseTimed,
)
from rocsolid.torchapi.dynamo.compile_hooks import Compile, listen
from rocsolid.torchapi.dynamo.graph_events import break_of, operators, place_of
from rocsolid.torchapi.dynamo.guard_value import found_value, guard_text
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.patch import Swap
from rocsolid.torchapi.private_api import door
from rocsolid.torchapi.user_frames import user_place

_CONTEXT = door("torch._guards", "CompileContext.try_get", "2.4..")
_START = door("torch._dynamo.utils", "ChromiumEventLogger.log_event_start", "2.6..")
_END = door("torch._dynamo.utils", "ChromiumEventLogger.log_event_end", "2.6..")
_INSTANT = door("torch._dynamo.utils", "ChromiumEventLogger.log_instant_event", "2.6..")
_SUMMARY = door("torch._dynamo.utils", "CompilationMetrics.create", "2.7..")
_HANDED = door("torch._dynamo.output_graph", "OutputGraph.call_user_compiler", "2.4..")
_LOWERING = door("torch._inductor.graph", "GraphLowering.__init__", "2.4..")
_READY = door("torch._inductor.output_code", "CompiledFxGraph.post_compile", "2.6..")
_BROKE = door("torch._dynamo.symbolic_convert", "InstructionTranslatorBase.log_graph_break", "2.5..")

_log = logging.getLogger("rocsolid")
_HEAD: Final = 100  # characters in which a program says what it is: # AOT ID: ['0_backward']
BACKWARD_PHASES: Final = ("entire_backward_compile", "compile_fx.<locals>.bw_compiler")
_CACHE: Final = re.compile(r"(fx_graph|autograd)_cache_(hit|miss|bypass|disabled)")
SUMMARY_FACTS: Final = (
    "co_name",
    "co_filename",
    "co_firstlineno",
    "graph_op_count",
    "graph_node_count",
    "graph_input_count",
    "guard_count",
    "fail_type",
    "fail_reason",
    "recompile_reason",
    "cudagraph_skip_reason",
    "is_forward",
    "is_runtime",
)
Heard = Callable[[CompileEvent], None]


@dataclass
class _Open:
    """A timed thing that has begun."""

    name: str
    start_ns: int
    backward: bool
    unit: int = 0
    inner_ns: int = 0


@dataclass
class _Thread:
    """What is going on in one thread."""

    units: list[int] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Working:
    """A compile that is going on."""

    unit: int
    thread_id: int
    since_s: float
    backward: bool


class _Hub:
    """Hears for everybody who listens. Whatever a hook of ours raises stays ours: the compile goes on."""

    def __init__(self) -> None:
        self._listeners: list[Heard] = []
        self._local = threading.local()
        self._threads: dict[int, _Thread] = {}
        self._lock = threading.Lock()
        self._count = 0
        # By identity; the context is held, so that no other can take its place.
        self._contexts: dict[int, tuple[object, int]] = {}
        self._named: dict[str, int] = {}
        self._swaps: list[Swap] = []
        self._cancels: list[Cancel] = []

    def add(self, heard: Heard) -> None:
        """One more listener; the first has the hooks put in."""
        with self._lock:
            self._listeners = [*self._listeners, heard]
            first = len(self._listeners) == 1
        if first:
            self._start()

    def remove(self, heard: Heard) -> None:
        """One listener less; after the last everything is put back as it was."""
        with self._lock:
            known = len(self._listeners)
            self._listeners = [listener for listener in self._listeners if listener is not heard]
            last = known == 1 and not self._listeners
        if last:
            self._stop()

    def _heard(self, event: CompileEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def _start(self) -> None:
        """Modules of torch's that are not imported yet are waited for."""
        waits = {
            "torch._dynamo.utils": self._attach_timer,
            "torch._dynamo.output_graph": self._attach("OutputGraph", "call_user_compiler", self._before(self._handed)),
            "torch._dynamo.symbolic_convert": self._attach(
                "InstructionTranslatorBase", "log_graph_break", self._before(self._broken)
            ),
            "torch._inductor.graph": self._attach("GraphLowering", "__init__", self._after(self._lowering)),
            "torch._inductor.output_code": self._attach("CompiledFxGraph", "post_compile", self._after(self._ready)),
        }
        self._cancels = [when_imported(name, attach) for name, attach in waits.items()]
        self._cancels.append(listen(self))

    def _stop(self) -> None:
        for cancel in self._cancels:
            cancel()
        for swap in reversed(self._swaps):
            swap.undo()
        self._cancels, self._swaps = [], []
        self._contexts, self._named, self._threads = {}, {}, {}
        self._local = threading.local()

    # Frames, through `compiling`.

    def begun(self, compile_: Compile) -> AbstractContextManager[object]:
        """Dynamo begins with a frame."""
        unit = self._fresh()
        self._here.units.append(unit)
        self._here.compiles.append(compile_)
        code = compile_.shown
        _harmless(
            self._heard,
            CompileStarted(
                unit=unit,
                at_s=time.time(),
                thread=threading.current_thread().name,
                function=code.co_qualname if sys.version_info >= (3, 11) else code.co_name,
                file=code.co_filename,
                line=code.co_firstlineno,
                called_from=user_place(compile_.stack),
            ),
        )
        return nullcontext()

    def ended(self, compile_: Compile, *, compiled: bool) -> None:
        """Dynamo is done with it."""
        unit = self._here.units.pop() if self._here.units else 0
        if self._here.compiles:
            self._here.compiles.pop()
        error = compile_.error
        ours = type(error).__module__.startswith("torch._dynamo")  # not what the user's own code raised
        if error is not None and ours and not getattr(error, "logged", False):
            _harmless(self._heard, break_of(unit, error, str(error), compile_, whole_frame=True))
        said = "" if error is None else f"{type(error).__name__}: {error}"
        _harmless(self._heard, CompileEnded(unit=unit, at_s=time.time(), compiled=compiled, error=said))

    # Which unit an event belongs to.

    @property
    def _here(self) -> _Thread:
        here: _Thread | None = getattr(self._local, "thread", None)
        if here is None:
            here = self._local.thread = self._threads[threading.get_ident()] = _Thread()
        return here

    def _fresh(self) -> int:
        """A number for something that belongs to nothing known."""
        with self._lock:
            self._count += 1
            return self._count

    def working(self) -> list[Working]:
        """What is being compiled at this moment, thread by thread."""
        now = []
        for thread_id, thread in list(self._threads.items()):
            opened = list(thread.open)
            if opened and opened[0].unit:
                first, last = opened[0], opened[-1]
                now.append(
                    Working(unit=first.unit, thread_id=thread_id, since_s=first.start_ns / 1e9, backward=last.backward)
                )
        return now

    def _unit(self, compile_id: object = None) -> int:
        """The unit of this thread's compile; of the newest of that id for what happens when compiled code first runs."""
        context = _CONTEXT.reach()()
        units = self._here.units
        if context is None:
            return units[-1] if units else self._named.get(str(compile_id), 0)
        known = self._contexts.get(id(context))
        if known is not None:
            return known[1]
        with self._lock:
            taken = {unit for _, unit in self._contexts.values()}
            if units and units[-1] not in taken:
                unit = units[-1]
            else:  # a graph that came by no frame, such as torch._inductor.compile
                self._count += 1
                unit = self._count
            self._contexts[id(context)] = (context, unit)
            self._named[str(context.compile_id)] = unit
        self._heard(CompileIdAssigned(unit=unit, compile_id=str(context.compile_id)))
        return unit

    @property
    def _going_backward(self) -> bool:
        opened = self._here.open
        return bool(opened) and opened[-1].backward

    def _before(self, note: Callable[..., None]) -> Callable[[Any], Any]:
        """Note what a call is given, then let it happen."""

        def make(plain: Any) -> Any:
            def told(*args: Any, **kwargs: Any) -> Any:
                _harmless(note, *args, **kwargs)
                return plain(*args, **kwargs)

            return told

        return make

    def _after(self, note: Callable[..., None]) -> Callable[[Any], Any]:
        """Let a call happen, then note what it was given and has changed."""

        def make(plain: Any) -> Any:
            def told(*args: Any, **kwargs: Any) -> Any:
                made = plain(*args, **kwargs)
                _harmless(note, *args, **kwargs)
                return made

            return told

        return make

    # Phases, caches and the summary.

    def _attach_timer(self, module: ModuleType) -> None:
        logger = vars(module)["ChromiumEventLogger"]
        self._swaps += [
            Swap(logger, "log_event_start", self._before(self._started)),
            Swap(logger, "log_event_end", self._before(self._finished)),
            Swap(logger, "log_instant_event", self._before(self._instant)),
            Swap(vars(module)["CompilationMetrics"], "create", self._before(self._summed)),
        ]

    def _started(self, _logger: Any, event_name: str, time_ns: int, metadata: Any, *_: Any, **__: Any) -> None:
        backward = event_name in BACKWARD_PHASES or self._going_backward or bool(metadata.get("is_backward"))
        opened = self._here.open
        opened.append(_Open(event_name, time_ns, backward, unit=opened[-1].unit if opened else self._unit()))

    def _finished(self, _logger: Any, event_name: str, time_ns: int, *args: Any, **kwargs: Any) -> None:
        opened = self._here.open
        if not any(span.name == event_name for span in opened):
            return  # it began before we listened
        while (span := opened.pop()).name != event_name:
            pass  # never ended
        took = time_ns - span.start_ns
        if opened:
            opened[-1].inner_ns += took
        if unit := self._unit(args[3] if len(args) > 3 else kwargs.get("compile_id")):  # noqa: PLR2004 - its place in the signature
            self._heard(
                PhaseTimed(
                    unit=unit,
                    name=event_name,
                    start_s=span.start_ns / 1e9,
                    end_s=time_ns / 1e9,
                    own_s=max(0, took - span.inner_ns) / 1e9,
                    depth=len(opened),
                    thread=threading.current_thread().name,
                    backward=span.backward,
                )
            )

    def _instant(self, _logger: Any, event_name: str, _time_ns: int, metadata: Any = None, *_: Any, **__: Any) -> None:
        if (found := _CACHE.fullmatch(event_name)) and (unit := self._unit()):
            why = str((metadata or {}).get("cache_bypass_reason") or "")
            cache, state = found[1].removesuffix("_graph"), found[2]
            self._heard(CacheLookup(unit=unit, cache=cache, state=state, reason=why, backward=self._going_backward))

    def _summed(self, metrics: Mapping[str, Any]) -> None:
        unit = self._unit(metrics.get("compile_id"))
        if unit and not metrics.get("is_runtime"):
            facts = {name: metrics[name] for name in SUMMARY_FACTS if metrics.get(name) is not None}
            if (reason := facts.get("recompile_reason")) and self._here.compiles:
                facts["recompile_new_value"] = found_value(guard_text(str(reason)), self._here.compiles[-1].frame)
            self._heard(MetricsReported(unit=unit, backward=metrics.get("is_forward") is False, metrics=facts))

    # Graphs, programs and breaks.

    def _attach(self, owner: str, name: str, make: Callable[[Any], Any]) -> Callable[[ModuleType], None]:
        def attach(module: ModuleType) -> None:
            if hasattr(vars(module).get(owner), name):
                self._swaps.append(Swap(vars(module)[owner], name, make))
            else:
                _log.warning("this torch has no %s.%s; what it tells of compiles stays unheard", owner, name)

        return attach

    def _handed(self, _output: Any, gm: Any, *_: Any, **__: Any) -> None:
        nodes = list(gm.graph.nodes)
        self._heard(
            GraphTraced(
                unit=self._unit(),
                nodes=len(nodes),
                inputs=sum(node.op == "placeholder" for node in nodes),
                operators=operators(nodes),
                locations={node.name: place for node in nodes if (place := place_of(node))},
            )
        )

    def _lowering(self, graph: Any, gm: Any, *_: Any, **__: Any) -> None:
        if unit := self._unit():
            nodes = list(gm.graph.nodes)
            backward = bool(getattr(graph, "is_backward", False))
            self._heard(GraphLowered(unit=unit, backward=backward, nodes=len(nodes), operators=operators(nodes)))

    def _ready(self, compiled: Any, _inputs: Any, _constants: Any, graph_kwargs: Any, *_: Any, **__: Any) -> None:
        reasons = getattr(compiled.cudagraph_info, "cudagraph_fail_reasons", None) or ()
        refused = compiled.disabled_cudagraphs_reason or ", ".join(reasons)
        source = str(getattr(compiled, "source_code", ""))
        self._heard(
            CodeGenerated(
                unit=self._unit() or self._fresh(),
                # Not every release says so for what comes from a cache; the program itself does.
                backward=bool(graph_kwargs.get("is_backward")) or "_backward']" in source[:_HEAD],
                source=source,
                nodes_before_fusion=int(getattr(compiled.metrics_deltas, "ir_nodes_pre_fusion", 0)),
                cuda_graph_requested=bool(graph_kwargs.get("cudagraphs")) or bool(refused),
                cuda_graph_skipped=str(refused or ""),
            )
        )

    def _broken(self, translator: Any, *args: Any, **kwargs: Any) -> None:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, BaseException)]
        error = given[0] if given else sys.exc_info()[1]
        if error is not None and not getattr(error, "logged", False):
            reason = next((a for a in args[1:] if isinstance(a, str)), str(kwargs.get("reason", error)))
            self._heard(break_of(self._unit(), error, reason, translator))


_hub: Final = _Hub()


def hear(heard: Heard) -> Callable[[], None]:
    """Hand every event to `heard` from now on; returns how to stop. Several may listen, and stop in any order."""
    _hub.add(heard)
    return lambda: _hub.remove(heard)


def working() -> list[Working]:
    """What is being compiled at this moment, thread by thread, as far as somebody listens."""
    return _hub.working()


def _harmless(note: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """A compile must not fail because somebody looks on."""
    try:
        note(*args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever it is, it is not the user's
        _log.warning("an event of a compile could not be noted (%s)", note.__name__, exc_info=True)
