"""Publishes events about torch's compiler while at least one handler is subscribed.

Seven points in torch are hooked: the timer of every compile phase, the summary of each compile, the call that passes a graph from
Dynamo to its backend, the start of lowering in Inductor, the moment the generated code is ready (new or from a cache), the logging
of a graph break, and, through `compile_hooks`, the start and end of each frame. Methods are replaced in their classes. This also covers
functions that were compiled before, and all threads. `torch._dynamo.reset()` removes torch's own callbacks, but not these hooks.
"""

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
    GraphTraced,
    LoweringStarted,
    MetricsReported,
    PhaseTimed,
)
from rocsolid.model.log import log as _log
from rocsolid.torchapi.dynamo.compile_hooks import Compile, add_compile_listener, frames_up
from rocsolid.torchapi.dynamo.failed_guards import found_value, guard_text
from rocsolid.torchapi.dynamo.graph_events import break_event, node_location, operators
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.private_api import COMPILER_PACKAGES, AttributePatch, PrivateName, private_name
from rocsolid.torchapi.user_frames import user_location

_UTILS = "torch._dynamo.utils"
_NO_TIMES = "rocsolid compiles: the times of the phases are missing"
_CONTEXT = private_name(
    "torch._guards", "CompileContext.try_get", "2.4..", without="rocsolid compiles: compiles have no ids such as 0/0"
)
_START = private_name(_UTILS, "ChromiumEventLogger.log_event_start", "2.6..", without=_NO_TIMES)
_END = private_name(_UTILS, "ChromiumEventLogger.log_event_end", "2.6..", without=_NO_TIMES)
_INSTANT = private_name(
    _UTILS, "ChromiumEventLogger.log_instant_event", "2.6..", without="rocsolid compiles: cache hits are missing"
)
_SUMMARY = private_name(
    _UTILS, "CompilationMetrics.create", "2.7..", without="rocsolid compiles: the causes of recompiles are missing"
)
CALL_BACKEND = private_name(
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    "2.4..",
    without="rocsolid compiles: the operators and lines of graphs are missing, and this phase of a compile is not named",
)
_LOWERING = private_name(
    "torch._inductor.graph",
    "GraphLowering.__init__",
    "2.4..",
    without="rocsolid compiles: the operators of lowered graphs are missing",
)
_POST_COMPILE = private_name(
    "torch._inductor.output_code",
    "CompiledFxGraph.post_compile",
    "2.6..",
    without="rocsolid compiles: kernels and skipped CUDA graphs are missing",
)
_NO_BREAKS = "rocsolid breaks: graph breaks inside a function are missing"
_LOG_GRAPH_BREAK = private_name(
    "torch._dynamo.symbolic_convert", "InstructionTranslatorBase.log_graph_break", "2.10..", without=_NO_BREAKS
)
_LOG_GRAPH_BREAK_2_9 = private_name(
    "torch._dynamo.symbolic_convert", "log_graph_break", "2.9", without=_NO_BREAKS
)  # a method of the translator since 2.10
_EXTRACT_STACK = private_name("torch._guards", "TracingContext.extract_stack", "2.9", without=_NO_BREAKS)

_ID_LENGTH: Final = 100  # the first characters of generated code contain its id: # AOT ID: ['0_backward']
BACKWARD_PHASES: Final = ("entire_backward_compile", "compile_fx.<locals>.bw_compiler")
_CACHE_EVENT: Final = re.compile(r"(fx_graph|autograd)_cache_(hit|miss|bypass|disabled)")
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
EventHandler = Callable[[CompileEvent], None]


@dataclass
class _OpenPhase:
    """A timed phase that has started and not ended."""

    name: str
    start_ns: int
    backward: bool
    unit: int = 0
    inner_ns: int = 0  # time in phases inside this one


@dataclass
class _ThreadState:
    """The compiles and open phases of one thread."""

    units: list[int] = field(default_factory=list)
    open_phases: list[_OpenPhase] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ActiveCompile:
    """A compile that is running now."""

    unit: int  # the number that all events of one compile share
    thread_id: int
    since_s: float
    backward: bool


class _EventHub:
    """Hooks torch and passes events to all handlers. An error in a hook is logged; the compile continues."""

    def __init__(self) -> None:
        self._handlers: list[EventHandler] = []
        self._local = threading.local()
        self._threads: dict[int, _ThreadState] = {}
        self._lock = threading.Lock()
        self._count = 0
        # By id(context); the context is kept alive, so that its id is not reused.
        self._contexts: dict[int, tuple[object, int]] = {}
        self._unit_by_id: dict[str, int] = {}
        self._patches: list[AttributePatch] = []
        self._undo_hooks: list[Cancel] = []

    def add(self, handler: EventHandler) -> None:
        """Add a handler; the first one installs the hooks."""
        with self._lock:
            self._handlers = [*self._handlers, handler]
            first = len(self._handlers) == 1
        if first:
            self._start()

    def remove(self, handler: EventHandler) -> None:
        """Remove a handler; after the last one the hooks are removed."""
        with self._lock:
            count = len(self._handlers)
            self._handlers = [known for known in self._handlers if known is not handler]
            last = count == 1 and not self._handlers
        if last:
            self._stop()

    def _publish(self, event: CompileEvent) -> None:
        for handler in self._handlers:
            handler(event)

    def _start(self) -> None:
        """Install the hooks; in a module that is not imported yet, as soon as it is imported."""
        hooks = (
            (_START, self._before(self._phase_started)),
            (_END, self._before(self._phase_ended)),
            (_INSTANT, self._before(self._cache_event)),
            (_SUMMARY, self._before(self._summary)),
            (CALL_BACKEND, self._before(self._graph_traced)),
            (_LOG_GRAPH_BREAK, self._before(self._graph_broke)),
            (_LOG_GRAPH_BREAK_2_9, self._before(self._graph_broke_in_2_9)),
            (_LOWERING, self._after(self._graph_lowered)),
            (_POST_COMPILE, self._after(self._code_ready)),
        )
        self._undo_hooks = [when_imported(name.module, self._attach(name, make)) for name, make in hooks]
        self._undo_hooks.append(add_compile_listener(self))

    def _stop(self) -> None:
        for cancel in self._undo_hooks:
            cancel()
        for patch in reversed(self._patches):
            patch.undo()
        self._undo_hooks, self._patches = [], []
        self._contexts, self._unit_by_id, self._threads = {}, {}, {}
        self._local = threading.local()

    # Frames, through `compile_hooks`.

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:
        """Called when Dynamo starts compiling a frame."""
        unit = self._new_unit()
        self._thread_state.units.append(unit)
        self._thread_state.compiles.append(compile_)
        code = compile_.user_code
        _log_failures(
            self._publish,
            CompileStarted(
                unit=unit,
                at_s=time.time(),
                thread=threading.current_thread().name,
                function=code.co_qualname if sys.version_info >= (3, 11) else code.co_name,
                file=code.co_filename,
                line=code.co_firstlineno,
                called_from=user_location(compile_.stack),
            ),
        )
        return nullcontext()

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """Called when Dynamo has finished the frame."""
        unit = self._thread_state.units.pop() if self._thread_state.units else 0
        if self._thread_state.compiles:
            self._thread_state.compiles.pop()
        error = compile_.error
        from_dynamo = type(error).__module__.startswith(COMPILER_PACKAGES[0])  # not an error of the user's own code
        if error is not None and from_dynamo and not getattr(error, "logged", False):
            _log_failures(self._publish, break_event(unit, error, str(error), compile_, frame_skipped=True))
        message = "" if error is None else f"{type(error).__name__}: {error}"
        _log_failures(self._publish, CompileEnded(unit=unit, at_s=time.time(), compiled=compiled, error=message))

    # The unit (the number of a compile) that an event belongs to.

    @property
    def _thread_state(self) -> _ThreadState:
        state: _ThreadState | None = getattr(self._local, "thread", None)
        if state is None:
            state = self._local.thread = self._threads[threading.get_ident()] = _ThreadState()
        return state

    def _new_unit(self) -> int:
        """Return a new unit number."""
        with self._lock:
            self._count += 1
            return self._count

    def active_compiles(self) -> list[ActiveCompile]:
        """Return the compiles that are running now, one per thread."""
        running = []
        for thread_id, thread in list(self._threads.items()):
            open_phases = list(thread.open_phases)
            if open_phases and open_phases[0].unit:
                first, last = open_phases[0], open_phases[-1]
                running.append(
                    ActiveCompile(
                        unit=first.unit, thread_id=thread_id, since_s=first.start_ns / 1e9, backward=last.backward
                    )
                )
        return running

    def _unit(self, compile_id: object = None) -> int:
        """Return the unit of this thread's compile; outside a compile, the newest unit with that compile id.

        Events outside a compile come from the first run of compiled code.
        """
        try_get = _CONTEXT.find()
        context = try_get() if try_get is not None else None
        units = self._thread_state.units
        if context is None:
            return units[-1] if units else self._unit_by_id.get(str(compile_id), 0)
        context_and_unit = self._contexts.get(id(context))
        if context_and_unit is not None:
            return context_and_unit[1]
        with self._lock:
            used_units = {unit for _, unit in self._contexts.values()}
            if units and units[-1] not in used_units:
                unit = units[-1]
            else:  # a graph without a frame, such as from torch._inductor.compile
                self._count += 1
                unit = self._count
            self._contexts[id(context)] = (context, unit)
            self._unit_by_id[str(context.compile_id)] = unit
        self._publish(CompileIdAssigned(unit=unit, compile_id=str(context.compile_id)))
        return unit

    @property
    def _in_backward(self) -> bool:
        open_phases = self._thread_state.open_phases
        return bool(open_phases) and open_phases[-1].backward

    def _before(self, handle: Callable[..., None]) -> Callable[[Any], Any]:
        """Call `handle` with the arguments, then the original."""

        def make(original: Any) -> Any:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                _log_failures(handle, *args, **kwargs)
                return original(*args, **kwargs)

            return wrapper

        return make

    def _after(self, handle: Callable[..., None]) -> Callable[[Any], Any]:
        """Call the original, then `handle` with the arguments, which the call may have changed."""

        def make(original: Any) -> Any:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                _log_failures(handle, *args, **kwargs)
                return result

            return wrapper

        return make

    # Phases, caches and the summary.

    def _phase_started(self, _logger: Any, event_name: str, time_ns: int, metadata: Any, *_: Any, **__: Any) -> None:
        backward = event_name in BACKWARD_PHASES or self._in_backward or bool(metadata.get("is_backward"))
        open_phases = self._thread_state.open_phases
        open_phases.append(
            _OpenPhase(event_name, time_ns, backward, unit=open_phases[-1].unit if open_phases else self._unit())
        )

    def _phase_ended(self, _logger: Any, event_name: str, time_ns: int, *args: Any, **kwargs: Any) -> None:
        open_phases = self._thread_state.open_phases
        if not any(phase.name == event_name for phase in open_phases):
            return  # it started before the first handler subscribed
        while (phase := open_phases.pop()).name != event_name:
            pass  # a phase without an end event
        duration_ns = time_ns - phase.start_ns
        if open_phases:
            open_phases[-1].inner_ns += duration_ns
        if unit := self._unit(args[3] if len(args) > 3 else kwargs.get("compile_id")):  # noqa: PLR2004 - its position in the signature
            self._publish(
                PhaseTimed(
                    unit=unit,
                    name=event_name,
                    start_s=phase.start_ns / 1e9,
                    end_s=time_ns / 1e9,
                    own_s=max(0, duration_ns - phase.inner_ns) / 1e9,
                    depth=len(open_phases),
                    thread=threading.current_thread().name,
                    backward=phase.backward,
                )
            )

    def _cache_event(
        self, _logger: Any, event_name: str, _time_ns: int, metadata: Any = None, *_: Any, **__: Any
    ) -> None:
        if (match := _CACHE_EVENT.fullmatch(event_name)) and (unit := self._unit()):
            reason = str((metadata or {}).get("cache_bypass_reason") or "")
            cache, state = match[1].removesuffix("_graph"), match[2]
            self._publish(CacheLookup(unit=unit, cache=cache, state=state, reason=reason, backward=self._in_backward))

    def _summary(self, metrics: Mapping[str, Any]) -> None:
        unit = self._unit(metrics.get("compile_id"))
        if unit and not metrics.get("is_runtime"):
            facts = {name: metrics[name] for name in SUMMARY_FACTS if metrics.get(name) is not None}
            if (reason := facts.get("recompile_reason")) and self._thread_state.compiles:
                facts["recompile_new_value"] = found_value(
                    guard_text(str(reason)), self._thread_state.compiles[-1].frame
                )
            self._publish(MetricsReported(unit=unit, backward=metrics.get("is_forward") is False, metrics=facts))

    # Graphs, programs and breaks.

    def _attach(self, name: PrivateName, make: Callable[[Any], Any]) -> Callable[[ModuleType], None]:
        def attach(_module: ModuleType) -> None:
            if (patch := name.patch(make)) is not None:
                self._patches.append(patch)

        return attach

    def _graph_traced(self, _output: Any, gm: Any, *_: Any, **__: Any) -> None:
        nodes = list(gm.graph.nodes)
        self._publish(
            GraphTraced(
                unit=self._unit(),
                nodes=len(nodes),
                inputs=sum(node.op == "placeholder" for node in nodes),
                operators=operators(nodes),
                locations={node.name: location for node in nodes if (location := node_location(node))},
            )
        )

    def _graph_lowered(self, graph: Any, gm: Any, *_: Any, **__: Any) -> None:
        if unit := self._unit():
            nodes = list(gm.graph.nodes)
            backward = bool(getattr(graph, "is_backward", False))
            self._publish(LoweringStarted(unit=unit, backward=backward, nodes=len(nodes), operators=operators(nodes)))

    def _code_ready(self, compiled: Any, _inputs: Any, _constants: Any, graph_kwargs: Any, *_: Any, **__: Any) -> None:
        reasons = getattr(compiled.cudagraph_info, "cudagraph_fail_reasons", None) or ()
        skip_reason = compiled.disabled_cudagraphs_reason or ", ".join(reasons)
        source = str(getattr(compiled, "source_code", ""))
        self._publish(
            CodeGenerated(
                unit=self._unit() or self._new_unit(),
                # Some releases do not set this flag for cached code; the code itself contains its id.
                backward=bool(graph_kwargs.get("is_backward")) or "_backward']" in source[:_ID_LENGTH],
                source=source,
                nodes_before_fusion=int(getattr(compiled.metrics_deltas, "ir_nodes_pre_fusion", 0)),
                cuda_graph_requested=bool(graph_kwargs.get("cudagraphs")) or bool(skip_reason),
                cuda_graph_skipped=str(skip_reason or ""),
            )
        )

    def _graph_broke(self, translator: Any, *args: Any, **kwargs: Any) -> None:
        exceptions = [a for a in (*args, *kwargs.values()) if isinstance(a, BaseException)]
        error = exceptions[0] if exceptions else sys.exc_info()[1]
        if error is not None and not getattr(error, "logged", False):
            reason = next((a for a in args[1:] if isinstance(a, str)), str(kwargs.get("reason", error)))
            self._publish(break_event(self._unit(), error, reason, translator))

    def _graph_broke_in_2_9(self, _code_options: Any, reason: str = "", *_: Any, **__: Any) -> None:
        frames = frames_up(sys._getframe(1))
        caller = next(frame for frame in frames if frame.f_globals.get("__name__") == _LOG_GRAPH_BREAK_2_9.module)
        error = sys.exc_info()[1]
        if error is None:  # a branch on a tensor's value
            error = _BranchOnTensor(reason)
            error.real_stack = (extract_stack := _EXTRACT_STACK.find()) and extract_stack()
        self._publish(break_event(self._unit(), error, reason, caller.f_locals["self"]))


class _BranchOnTensor(Exception):  # noqa: N818 - torch raises none here
    real_stack: Any


_event_hub: Final = _EventHub()


def subscribe(handler: EventHandler) -> Callable[[], None]:
    """Pass every event to `handler` from now on; return a function that unsubscribes.

    Several handlers may subscribe and unsubscribe in any order.
    """
    _event_hub.add(handler)
    return lambda: _event_hub.remove(handler)


def active_compiles() -> list[ActiveCompile]:
    """Return the compiles that are running now, one per thread; empty while no handler is subscribed."""
    return _event_hub.active_compiles()


def _log_failures(handle: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Call `handle`; an exception is logged and not raised, so that a compile never fails because of a handler."""
    try:
        handle(*args, **kwargs)
    except Exception:  # noqa: BLE001 - no error of ours may reach the user's compile
        _log.warning("a compile event could not be recorded (%s)", handle.__name__, exc_info=True)
