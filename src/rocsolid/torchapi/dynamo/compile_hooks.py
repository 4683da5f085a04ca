"""Runs listeners when Dynamo starts and ends compiling a frame, and can cancel a compile.

Dynamo compiles every frame by calling a `ConvertFrameAssert` object, also for recompiles and for the rest of a function after a graph
break. If the function may fall back to eager, a `ConvertFrame` object makes that call. The `__call__` methods of these two classes are
replaced. Python looks `__call__` up in the class, so this also covers functions that were compiled before. Torch is patched only while
a listener is registered.

A cancelled frame runs in eager. For a function from `rs.compile` the caller remembers that. For any other function the frame's code
object gets a skip mark, as torch itself does it. All instances of a class share this code object, so `remove_skip_marks` removes the
marks before something else is compiled.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, Protocol

from rocsolid.errors import CompileDeadlineError, first_line
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.private_api import AttributePatch, private_name

_NO_HOOKS = "rs.compile, rs.guard, rocsolid compiles: compiles have no deadline, are not counted and not recorded"
_RAISES = "rs.compile: a compile that is cancelled at its deadline raises an error instead of falling back to eager"
_ASSERT = private_name("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__", "2.4..", without=_NO_HOOKS)
_CONVERT = private_name("torch._dynamo.convert_frame", "ConvertFrame.__call__", "2.4..", without=_RAISES)
_RETURN = private_name("torch._dynamo.types", "ConvertFrameReturn", "2.6..", without=_RAISES)
_STRATEGY = private_name("torch._dynamo.types", "FrameExecStrategy", "2.6..", without=_RAISES)
_ACTION = private_name("torch._dynamo.types", "FrameAction", "2.6..", without=_RAISES)
_FULL_GRAPH = private_name(
    "torch._dynamo.convert_frame", "ConvertFrameAssert._one_graph", "2.4..", of_instances=True, without=_RAISES
)
_MODULE_WRAPPER = private_name(
    "torch._dynamo.external_utils",
    "wrap_inline",
    "2.4..",
    without="rocsolid compiles: a module is listed as `inner` of torch",
)
_UNSEEN = "rs.optimize: a form that torch ran in eager is not recognised"
_RESET_CODE = private_name(
    "torch._C._dynamo.eval_frame",
    "reset_code",
    "2.0..",
    without="rs.optimize: a function whose compile was cancelled is not compiled again",
)
GRAPH_NAME = private_name("torch._dynamo", "__compiled_fn", "2.0..", text=True, without=_UNSEEN)
CACHING_PRECOMPILE = private_name(
    "torch._dynamo.config",
    "caching_precompile",
    "2.11..",
    without="rs.optimize: Dynamo's traces are not kept, so a second process traces again",
)
_GUARD_HOOK = private_name("torch._C._dynamo.eval_frame", "set_guard_complete_hook", "2.8..", without=_UNSEEN)

FALLBACK_ERRORS: Final = frozenset({"Unsupported", "UserError"})  # Dynamo falls back to eager for these


class CompileCancelled(BaseException):
    """Raised inside a compile to end it. It is a BaseException, so that no `except Exception` in torch catches it."""

    mark_code = True  # whether the frame's code gets a skip mark; otherwise the caller of the function remembers


@dataclass(eq=False)
class Compile:
    """One frame being compiled."""

    code: CodeType
    thread_id: int
    started: float
    full_graph: bool  # fullgraph=True: there is no fallback to eager
    cancel_reason: str = ""  # after how long it was cancelled, and in which phase; empty if it was not
    wrapped_code: CodeType | None = None  # the user's code, if the frame is torch's wrapper around it
    stack: FrameType | None = field(default=None, repr=False)  # the stack in which the compile started
    frame: Any = field(default=None, repr=False)  # the frame that Dynamo compiles
    error: BaseException | None = field(default=None, repr=False)  # the error, if the compile failed
    has_graph: bool = False  # the compile produced code that calls a graph
    skip_reason: str = ""  # torch's reason, if it runs the frame in eager without an error (2.13 and later)
    owner: Any = field(default=None, repr=False)  # set by the listener that runs the function in eager after a cancel

    @property
    def name(self) -> str:
        """The function's name and location, for messages."""
        code = self.user_code
        function_name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
        return f"{function_name} ({code.co_filename}:{code.co_firstlineno})"

    @property
    def eager_reason(self) -> str:
        """Why torch runs the frame in eager; "" if the compile succeeded or raised an error to the caller."""
        if self.cancel_reason:
            return f"its compile was cancelled {self.cancel_reason}"
        if self.error is not None:
            falls_back = {base.__name__ for base in type(self.error).__mro__} & FALLBACK_ERRORS
            return f"{type(self.error).__name__}: {first_line(self.error)}" if falls_back else ""
        return f"torch skipped it: {self.skip_reason}" if self.skip_reason else ""

    @property
    def user_code(self) -> CodeType:
        """The code of the user's function. For a module, Dynamo compiles a wrapper of torch that calls it."""
        return self.wrapped_code or self.code


class CompileListener(Protocol):
    """An object that is called for every compile."""

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:
        """Called when a compile starts. The compile runs inside the returned context manager; an exception prevents the compile."""
        ...

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """Called when the compile has ended; `compiled` is whether it produced code."""
        ...


class _Listeners:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: list[CompileListener] = []
        self.patches: list[AttributePatch] = []
        self.cancel_import_hook: Cancel = lambda: None

    def add(self, listener: CompileListener) -> None:
        with self.lock:
            self.listeners.append(listener)
            if len(self.listeners) == 1:
                self.cancel_import_hook = when_imported(_ASSERT.module, self._attach)

    def remove(self, listener: CompileListener) -> None:
        with self.lock:
            self.listeners = [known for known in self.listeners if known is not listener]
            if not self.listeners:
                self.cancel_import_hook()
                for patch in reversed(self.patches):
                    patch.undo()
                self.patches = []

    def _attach(self, _module: ModuleType) -> None:
        patches = (_ASSERT.patch(self._wrap_with_listeners), _CONVERT.patch(_wrap_with_fallback))
        self.patches = [patch for patch in patches if patch is not None]

    def _wrap_with_listeners(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def convert_frame(converter: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            compile_ = Compile(
                code=frame.f_code,
                thread_id=threading.get_ident(),
                started=time.monotonic(),
                full_graph=bool(_FULL_GRAPH.of(converter, not _can_fall_back())),
                frame=frame,
                stack=sys._getframe(1),
                wrapped_code=_wrapped_code(frame),
            )
            listeners = list(self.listeners)
            compiled = False
            try:
                with ExitStack() as stack:
                    for listener in listeners:
                        stack.enter_context(listener.on_start(compile_))
                    result = original(converter, frame, *args, **kwargs)
                compiled = getattr(result, "guarded_code", None) is not None
                compile_.has_graph = compiled and any(
                    n.startswith(GRAPH_NAME.name) for n in result.guarded_code.code.co_names
                )
                compile_.skip_reason = getattr(result, "skip_reason", None) or ""
            except CompileCancelled as cancelled:
                if not compile_.full_graph:
                    cancelled.mark_code = compile_.owner is None
                    raise  # `ConvertFrame` falls back to eager
                msg = (
                    f"{compile_.name}: compile cancelled {compile_.cancel_reason or 'at its deadline'}.\n"
                    "fullgraph=True allows no fallback to eager.\n"
                    "fix: raise deadline_s, or remove fullgraph=True; the log has the stack of the compile"
                )
                raise CompileDeadlineError(msg) from None
            except Exception as error:
                compile_.error = error
                raise
            finally:
                compile_.stack = compile_.frame = None
                for listener in listeners:
                    listener.on_end(compile_, compiled=compiled)
                compile_.error = None  # it would keep all frames of the compile alive
            return result

        return convert_frame


def _can_fall_back() -> bool:
    """Return whether this torch has everything that turns a cancelled compile into a call in eager."""
    return all(name.find() is not None for name in (_CONVERT, _RETURN, _STRATEGY, _ACTION))


def _wrap_with_fallback(original: Callable[..., Any]) -> Callable[..., Any]:
    def convert_or_skip(converter: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(converter, frame, *args, **kwargs)
        except CompileCancelled as cancelled:
            if not _can_fall_back():
                raise
            # Run this frame and the functions that it calls in eager.
            skip = _ACTION.get().SKIP
            if cancelled.mark_code:
                _marked_codes.append(frame.f_code)
            return _RETURN.get()(frame_exec_strategy=_STRATEGY.get()(skip, skip), apply_to_code=cancelled.mark_code)

    return convert_or_skip


_marked_codes: Final[list[CodeType]] = []


def remove_skip_marks() -> None:
    """Remove the skip marks of cancelled compiles, so that other functions with the same code are compiled again."""
    reset_code = _RESET_CODE.find() if _marked_codes else None
    while _marked_codes:
        code = _marked_codes.pop()
        if reset_code is not None:
            reset_code(code)


class CompiledRuns:
    """Records whether this thread compiles graphs or runs compiled code inside the block.

    A successful call is no proof: torch runs code with a skip mark in eager, and says nothing.
    """

    def __init__(self) -> None:
        self._graphs = self._without_graph = self._cache_hits = 0
        self._can_count = _GUARD_HOOK.find() is not None and not GRAPH_NAME.is_closed()
        self._thread_id = threading.get_ident()
        self._remove: Callable[[], None] = lambda: None
        self._previous: Callable[[bool], bool] | None = None

    @property
    def only_eager(self) -> bool:
        """Whether everything ran in eager; False if this torch cannot tell."""
        ran_compiled = self._graphs or (self._cache_hits and not self._without_graph)
        return self._can_count and not ran_compiled

    @property
    def ran_compiled(self) -> bool:
        """Whether compiled code ran; False if this torch cannot tell."""
        return self._can_count and not self.only_eager

    def __enter__(self) -> "CompiledRuns":
        self._remove = add_compile_listener(self)
        # Code that torch loads from a saved trace runs without a compile, and without a call of this hook.
        self._can_count = self._can_count and not CACHING_PRECOMPILE.find()
        if self._can_count:
            self._previous = _GUARD_HOOK.get()(self._on_guards_checked)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._can_count:
            _GUARD_HOOK.get()(self._previous)
        self._remove()

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:  # noqa: ARG002
        """Do nothing before a compile."""
        return nullcontext()

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """Count a compile that produced code. After a graph break, the code of a frame may contain no graph."""
        if compiled and compile_.thread_id == self._thread_id:
            self._graphs += compile_.has_graph
            self._without_graph += not compile_.has_graph

    def _on_guards_checked(self, cache_hit: bool) -> bool:  # noqa: FBT001 - torch's signature
        self._cache_hits += cache_hit and threading.get_ident() == self._thread_id
        return self._previous is None or self._previous(cache_hit)


def _wrapped_code(frame: Any) -> CodeType | None:
    """Return the code of the user's function, if the frame is torch's wrapper `inner` around it; Dynamo compiles that wrapper for a module."""
    wrapper = _MODULE_WRAPPER.find()
    if wrapper is None or frame.f_code not in wrapper.__code__.co_consts:
        return None
    for cell in getattr(frame, "closure", None) or ():
        function = getattr(cell, "cell_contents", None)
        function = getattr(function, "forward", function)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


_listeners: Final = _Listeners()


def add_compile_listener(listener: CompileListener) -> Callable[[], None]:
    """Call the listener for every compile from now on; return a function that removes it."""
    _listeners.add(listener)
    return lambda: _listeners.remove(listener)


def frames_up(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
