"""Runs listeners when Dynamo starts and ends compiling a frame, and can cancel a compile.

Dynamo compiles every frame by calling a `ConvertFrameAssert` object, also for recompiles and for the rest of a function after a graph
break. If the function may fall back to eager, a `ConvertFrame` object makes that call. The `__call__` methods of these two classes are
replaced. Python looks `__call__` up in the class, so this also covers functions that were compiled before. Torch is patched only while
a listener is registered.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, Protocol

from rocsolid.errors import CompileDeadlineError
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.private_api import private_name

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


class CompileCancelled(BaseException):
    """Raised inside a compile to end it. It is a BaseException, so that no `except Exception` in torch catches it."""


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

    @property
    def name(self) -> str:
        """The function's name and location, for messages."""
        code = self.user_code
        function_name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
        return f"{function_name} ({code.co_filename}:{code.co_firstlineno})"

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
            except CompileCancelled:
                if not compile_.full_graph:
                    raise  # `ConvertFrame` falls back to eager
                msg = (
                    f"{compile_.name}: compile cancelled {compile_.cancel_reason or 'at its deadline'}.\n"
                    "fullgraph=True allows no fallback to eager.\n"
                    "fix: raise deadline_s, or remove fullgraph=True; the log has the stacks of all threads"
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
    def convert_or_skip(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except CompileCancelled:
            if not _can_fall_back():
                raise
            # From now on, run this frame and the functions that it calls in eager.
            skip = _ACTION.get().SKIP
            return _RETURN.get()(frame_exec_strategy=_STRATEGY.get()(skip, skip), apply_to_code=True)

    return convert_or_skip


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
