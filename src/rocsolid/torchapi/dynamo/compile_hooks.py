"""Runs listeners when Dynamo starts and ends compiling a frame, and can cancel a compile.

Two torch classes process every frame that is compiled, including recompiles and resumed functions: `ConvertFrameAssert`, and
around it, for functions that may fall back to eager, `ConvertFrame`. Python looks `__call__` up on the type, so replacing the
method there also affects functions that are compiled already. Torch is patched only while a listener is registered.
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
from rocsolid.torchapi.private_api import private

_ASSERT = private("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__", "2.4..")
_CONVERT = private("torch._dynamo.convert_frame", "ConvertFrame.__call__", "2.4..")
_RETURN = private("torch._dynamo.types", "ConvertFrameReturn", "2.6..")
_STRATEGY = private("torch._dynamo.types", "FrameExecStrategy", "2.6..")
_ACTION = private("torch._dynamo.types", "FrameAction", "2.6..")


class CompileCancelled(BaseException):
    """Raised inside a compile to end it. A BaseException, so that no `except Exception` on the way swallows it."""


@dataclass(eq=False)
class Compile:
    """One frame being compiled."""

    code: CodeType
    thread_id: int
    started: float
    full_graph: bool  # fullgraph=True: there is no fallback to eager
    cancelled: str = ""  # why it was cancelled: after how long, and in which phase
    wrapped: CodeType | None = None  # the user's code, if the frame is torch's wrapper around it
    stack: FrameType | None = field(default=None, repr=False)  # the stack in which the compile started
    frame: Any = field(default=None, repr=False)  # the frame that Dynamo compiles
    error: BaseException | None = field(default=None, repr=False)  # the error, if the compile failed

    @property
    def name(self) -> str:
        """The function's name and location, for messages."""
        code = self.user_code
        called = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
        return f"{called} ({code.co_filename}:{code.co_firstlineno})"

    @property
    def user_code(self) -> CodeType:
        """The user's own code: a module is called through a wrapper function of torch."""
        return self.wrapped or self.code


class CompileListener(Protocol):
    """Called for every compile. The context manager from `on_start` surrounds the compile; an exception from it prevents the compile."""

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:
        """A compile starts."""
        ...

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """The compile has ended; `compiled` tells whether it produced code."""
        ...


class _Listeners:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: list[CompileListener] = []
        self.patches: list[AttributePatch] = []
        self.cancel: Cancel = lambda: None

    def add(self, listener: CompileListener) -> None:
        with self.lock:
            self.listeners.append(listener)
            if len(self.listeners) == 1:
                self.cancel = when_imported("torch._dynamo.convert_frame", self._attach)

    def remove(self, listener: CompileListener) -> None:
        with self.lock:
            self.listeners = [known for known in self.listeners if known is not listener]
            if not self.listeners:
                self.cancel()
                for patch in reversed(self.patches):
                    patch.undo()
                self.patches = []

    def _attach(self, module: ModuleType) -> None:
        self.patches = [
            AttributePatch(vars(module)["ConvertFrameAssert"], "__call__", self._notifying),
            AttributePatch(vars(module)["ConvertFrame"], "__call__", _falling_back),
        ]

    def _notifying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def convert_frame(convert: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            compile_ = Compile(
                code=frame.f_code,
                thread_id=threading.get_ident(),
                started=time.monotonic(),
                full_graph=bool(getattr(convert, "_one_graph", False)),
                frame=frame,
                stack=sys._getframe(1),
                wrapped=_wrapped(frame),
            )
            listeners = list(self.listeners)
            compiled = False
            try:
                with ExitStack() as scope:
                    for listener in listeners:
                        scope.enter_context(listener.on_start(compile_))
                    result = original(convert, frame, *args, **kwargs)
                compiled = getattr(result, "guarded_code", None) is not None
            except CompileCancelled:
                if not compile_.full_graph:
                    raise  # `ConvertFrame` falls back to eager
                msg = (
                    f"{compile_.name}: compile cancelled {compile_.cancelled or 'at its deadline'}.\n"
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
                compile_.error = None  # it references the frames of the whole compile
            return result

        return convert_frame


def _falling_back(original: Callable[..., Any]) -> Callable[..., Any]:
    def falling_back(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except CompileCancelled:
            # Run this frame and what it calls in eager from now on, without another attempt.
            skip = _ACTION.get().SKIP
            return _RETURN.get()(frame_exec_strategy=_STRATEGY.get()(skip, skip), apply_to_code=True)

    return falling_back


def _wrapped(frame: Any) -> CodeType | None:
    """The code of the function that torch's wrapper `inner` calls; Dynamo compiles the wrapper when a module is compiled."""
    if frame.f_code.co_name != "inner" or not frame.f_code.co_filename.endswith("_dynamo/external_utils.py"):
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
    """A frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
