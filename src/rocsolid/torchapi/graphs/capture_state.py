"""Keeps compiles out of graph captures, and random-number state readable in them where torch cannot.

A compile inside a capture fails with a message about copies, or does not fail and bakes in what it found (torch 2.10 to 2.13).
The stance `fail_on_recompile` refuses it on every torch, first compiles included. Torch 2.14 and later refuse by themselves.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any

from rocsolid.errors import CompileInCaptureError
from rocsolid.torchapi.import_hooks import when_imported
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.private_api import private

_GRAPH = private("torch.cuda.graphs", "graph.__enter__", "2.4..")
_MESSAGE = (
    "something would have been compiled while a graph was being captured. Call the function once before the capture, with the "
    "same shapes, types and grad mode, in the same thread: a compile inside a capture fails or, on torch 2.10 to 2.13, silently "
    "records what it should not"
)


@contextmanager
def compiles_refused(*, if_any: bool = False) -> Iterator[None]:
    """Inside the block a compile is an error that says what to do instead.

    With `if_any`, a process in which nothing was ever compiled is spared loading the compiler.
    """
    try:
        with refusing_stance(if_any=if_any):
            yield
    except RuntimeError as error:
        if is_refused_compile(error):
            raise CompileInCaptureError(_MESSAGE) from error
        raise


def refusing_stance(*, if_any: bool = False) -> AbstractContextManager[object]:
    """The stance in which torch refuses to compile, in torch's own words."""
    return nullcontext() if if_any and not _anything_compiled() else _stance("fail_on_recompile")


def is_refused_compile(error: BaseException) -> bool:
    """Whether an error is that refusal, in torch's words or ours."""
    return isinstance(error, CompileInCaptureError) or "fail_on_recompile" in str(error)


def refused_compile() -> str:
    """What to tell the user about it."""
    return _MESSAGE


def uncompiled() -> AbstractContextManager[object]:
    """Inside the block compiled functions run as they were written. Where nothing was ever compiled there is nothing to do."""
    return _stance("force_eager") if _anything_compiled() else nullcontext()


def _anything_compiled() -> bool:
    """Whether this process may have compiled something: the compiler is loaded."""
    return "torch._dynamo" in sys.modules


def _stance(name: str) -> AbstractContextManager[object]:
    import torch

    stance: AbstractContextManager[object] = torch.compiler.set_stance(name)
    return stance


class _SeenAsCapturing:
    """The threads that are told so; torch's function is replaced while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []
        self._swap: AttributePatch | None = None

    def enter(self) -> None:
        import torch

        with self._lock:
            self._threads.append(threading.get_ident())
            self._swap = self._swap or AttributePatch(torch.cuda, "is_current_stream_capturing", self._answer)

    def leave(self) -> None:
        with self._lock:
            self._threads.remove(threading.get_ident())
            if not self._threads and self._swap is not None:
                self._swap.undo()
                self._swap = None

    def _answer(self, plain: Callable[[], bool]) -> Callable[[], bool]:
        def is_current_stream_capturing() -> bool:
            asks = sys._getframe(1).f_globals.get("__name__", "")
            told = threading.get_ident() in self._threads and not asks.startswith("torch.")
            return told or plain()

        vars(is_current_stream_capturing)["_dynamo_marked_constant"] = True  # a compiler asks once, and believes it
        return is_current_stream_capturing


_seen = _SeenAsCapturing()


@contextmanager
def seen_as_capturing() -> Iterator[None]:
    """Inside, code of this thread that asks torch whether it is being captured hears yes, except for torch's own.

    Libraries ask, and go another way in a capture: they leave out what would read a value on the host, and so build a mask that
    they skip otherwise. Warm-up and comparison must go that way too, or the one meets in the capture what was never run before, and
    the other compares two ways that round differently.
    """
    _seen.enter()
    try:
        yield
    finally:
        _seen.leave()


@contextmanager
def rng_state_frozen() -> Iterator[None]:
    """Answer reads of the device's random-number state from the one saved before the block, and keep writes out.

    Up to torch 2.9 reading it in a capture raises, and Dynamo reads it whenever it traces. From 2.10 on reading is allowed and
    nothing is changed.
    """
    import torch

    if not _reading_raises(torch) or not torch.cuda.is_available():
        yield
        return
    saved = {index: torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count())}

    def current(device: Any = "cuda") -> int:
        given = torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
        return int(torch.cuda.current_device() if given.index is None else given.index)

    def get(_plain: Any) -> Any:
        return lambda device="cuda": saved[current(device)].clone()

    def set_(_plain: Any) -> Any:
        return lambda new_state, device="cuda": None  # noqa: ARG005 - the signature of set_rng_state

    swaps = [AttributePatch(module, "get_rng_state", get) for module in (torch.cuda, torch.cuda.random)]
    swaps += [AttributePatch(module, "set_rng_state", set_) for module in (torch.cuda, torch.cuda.random)]
    try:
        yield
    finally:
        for swap in reversed(swaps):
            swap.undo()


def _reading_raises(torch: ModuleType) -> bool:
    from rocsolid.model.release import compare

    return compare(str(torch.__version__), "2.10") < 0


def refuse_compiles_in_captures() -> Callable[[], None]:
    """Make every `torch.cuda.graph` block refuse compiles; returns how to undo that."""
    swaps: list[AttributePatch] = []

    def attach(module: ModuleType) -> None:
        graph = vars(module)["graph"]
        swaps.extend([AttributePatch(graph, "__enter__", _entering), AttributePatch(graph, "__exit__", _leaving)])

    cancel = when_imported("torch.cuda.graphs", attach)

    def undo() -> None:
        cancel()
        for swap in reversed(swaps):
            swap.undo()
        swaps.clear()

    return undo


def _entering(plain: Callable[..., Any]) -> Callable[..., Any]:
    def enter(graph: Any) -> Any:
        scope = ExitStack()
        scope.enter_context(rng_state_frozen())
        entered = plain(graph)
        scope.enter_context(compiles_refused())
        vars(graph)["_rocsolid_scope"] = scope
        return entered

    return enter


def _leaving(plain: Callable[..., Any]) -> Callable[..., Any]:
    def leave(graph: Any, kind: Any, error: Any, trace: Any) -> Any:
        scope: ExitStack | None = vars(graph).pop("_rocsolid_scope", None)
        try:
            plain(graph, kind, error, trace)
        except Exception:
            # Up to torch 2.14 a capture that cannot be ended leaves its stream current.
            if vars(graph).get("stream_ctx") is not None:
                graph.stream_ctx.__exit__(kind, error, trace)
            if error is None:
                if scope is not None:
                    scope.close()
                raise
            # It fails because of what failed inside, and that is what the user must see.
        if scope is not None:
            scope.__exit__(kind, error, trace)

    return leave
