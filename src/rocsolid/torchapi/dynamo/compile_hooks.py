"""Tells when Dynamo begins and ends compiling a frame, in which thread and for which code, and can call a compile off.

Two classes of torch's see every frame that is compiled, recompiles and resumed functions included: `ConvertFrameAssert`, and
around it, for functions that may fall back, `ConvertFrame`. Both are asked through their type, so that replacing the method
reaches compiled functions that exist already. Nothing is touched while nobody listens.
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
from rocsolid.torchapi.patch import Swap
from rocsolid.torchapi.private_api import door

_ASSERT = door("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__", "2.4..")
_CONVERT = door("torch._dynamo.convert_frame", "ConvertFrame.__call__", "2.4..")
_RETURN = door("torch._dynamo.types", "ConvertFrameReturn", "2.6..")
_STRATEGY = door("torch._dynamo.types", "FrameExecStrategy", "2.6..")
_ACTION = door("torch._dynamo.types", "FrameAction", "2.6..")


class CompileCalledOff(BaseException):
    """Raised inside a compile to end it. No `except Exception` on the way may swallow it."""


@dataclass(eq=False)
class Compile:
    """One frame being compiled."""

    code: CodeType
    thread_id: int
    started: float
    full_graph: bool  # there is no falling back to eager
    called_off: bool = False
    wrapped: CodeType | None = None  # the user's code, where the frame is only a wrapper of torch's around it
    frame: Any = field(
        default=None, repr=False
    )  # of the call that is compiled, with its arguments; while it is compiled
    stack: FrameType | None = field(default=None, repr=False)  # where the compile was begun from
    error: BaseException | None = field(default=None, repr=False)  # what ended it, when it did not succeed

    @property
    def name(self) -> str:
        """The function with its place, for a reader."""
        code = self.shown
        called = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
        return f"{called} ({code.co_filename}:{code.co_firstlineno})"

    @property
    def shown(self) -> CodeType:
        """The code that a reader knows: a module is called through a wrapper of torch's."""
        return self.wrapped or self.code


class Listener(Protocol):
    """Hears of compiles. What `begun` returns is entered around the compile; what it raises refuses it."""

    def begun(self, compile_: Compile) -> AbstractContextManager[object]:
        """A compile begins."""
        ...

    def ended(self, compile_: Compile, *, compiled: bool) -> None:
        """It has ended, with code or without."""
        ...


class _Switchboard:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: list[Listener] = []
        self.swaps: list[Swap] = []
        self.cancel: Cancel = lambda: None

    def add(self, listener: Listener) -> None:
        with self.lock:
            self.listeners.append(listener)
            if len(self.listeners) == 1:
                self.cancel = when_imported("torch._dynamo.convert_frame", self._attach)

    def remove(self, listener: Listener) -> None:
        with self.lock:
            self.listeners = [known for known in self.listeners if known is not listener]
            if not self.listeners:
                self.cancel()
                for swap in reversed(self.swaps):
                    swap.undo()
                self.swaps = []

    def _attach(self, module: ModuleType) -> None:
        self.swaps = [
            Swap(vars(module)["ConvertFrameAssert"], "__call__", self._told),
            Swap(vars(module)["ConvertFrame"], "__call__", _falling_back),
        ]

    def _told(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def told(convert: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
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
                        scope.enter_context(listener.begun(compile_))
                    result = plain(convert, frame, *args, **kwargs)
                compiled = getattr(result, "guarded_code", None) is not None
            except CompileCalledOff:
                if not compile_.full_graph:
                    raise  # `ConvertFrame` falls back to eager
                msg = (
                    f"the compile of {compile_.name} passed its deadline, and fullgraph=True leaves no way back to eager; "
                    "raise deadline_s, or leave fullgraph out"
                )
                raise CompileDeadlineError(msg) from None
            except Exception as error:
                compile_.error = error
                raise
            finally:
                compile_.stack = compile_.frame = None
                for listener in listeners:
                    listener.ended(compile_, compiled=compiled)
                compile_.error = None  # it holds the frames of the whole compile
            return result

        return told


def _falling_back(plain: Callable[..., Any]) -> Callable[..., Any]:
    def falling_back(*args: Any, **kwargs: Any) -> Any:
        try:
            return plain(*args, **kwargs)
        except CompileCalledOff:
            # Skip this frame and what it calls, now and from now on: eager, without another attempt.
            skip = _ACTION.reach().SKIP
            return _RETURN.reach()(frame_exec_strategy=_STRATEGY.reach()(skip, skip), apply_to_code=True)

    return falling_back


def _wrapped(frame: Any) -> CodeType | None:
    """The code of the function that torch's own `inner` calls, which is what is compiled when a module is."""
    if frame.f_code.co_name != "inner" or not frame.f_code.co_filename.endswith("_dynamo/external_utils.py"):
        return None
    for cell in getattr(frame, "closure", None) or ():
        function = getattr(cell, "cell_contents", None)
        function = getattr(function, "forward", function)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


_switchboard: Final = _Switchboard()


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every compile from now on; returns how to stop."""
    _switchboard.add(listener)
    return lambda: _switchboard.remove(listener)


def frames_up(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and all below it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
