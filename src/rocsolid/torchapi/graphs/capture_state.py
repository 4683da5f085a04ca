"""Changes torch's behaviour during a graph capture: compiles are refused, other threads wait, and the random number state can be read.

A compile during a capture fails with a message about copies, or does not fail and captures wrong values (torch 2.10 to 2.13).
The `torch.compiler` stance `fail_on_recompile` refuses every compile, also the first one of a function, on every torch release.
Torch 2.14 and later refuse a compile during a capture themselves.
"""

import functools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any, Final

from rocsolid.errors import CompileInCaptureError
from rocsolid.torchapi.import_hooks import when_imported
from rocsolid.torchapi.private_api import AttributePatch, compiler_imported, private_name
from rocsolid.torchapi.user_frames import is_torch_file

_NOT_REFUSED = "rs.guard: a compile inside the user's own torch.cuda.graph block is not refused"
# From 2.14 on torch itself refuses the compile, and from 2.15 on it leaves the stream of a failed capture.
_ENTER = private_name("torch.cuda.graphs", "graph.__enter__", "2.4..2.13", without=_NOT_REFUSED)
_EXIT = private_name("torch.cuda.graphs", "graph.__exit__", "2.4..2.14", without=_NOT_REFUSED)
_STREAM = private_name(
    "torch.cuda.graphs",
    "graph.stream_ctx",
    "2.4..2.14",
    of_instances=True,
    without="rs.guard: after a failed capture in a torch.cuda.graph block, its stream stays current",
)
_SYNC_ERROR = private_name(
    "torch._C",
    "synchronizing CUDA operation",
    "2.0..",
    text=True,
    gpu_builds_only=True,
    without="rs.capture: the refusal of a capture does not name the operator that waits for the GPU",
)
MARKED_CONSTANT = private_name(
    "torch._dynamo",
    "_dynamo_marked_constant",
    "2.0..",
    text=True,
    without="rs.capture: compiled code that asks whether a graph is captured has a graph break in the warm-up",
)
_SCOPE: Final = "_rocsolid_scope"  # of a torch.cuda.graph: what its block does
_LEAVING: Final = "_rocsolid_leaving"
_MAX_CAPTURE_S: Final = 60.0
_MAX_WAIT_S: Final = 10.0
COMPILE_PROBLEM: Final = (
    "torch.compile would compile during a graph capture, which fails or, on torch 2.10 to 2.13, captures wrong values"
)
COMPILE_FIX: Final = (
    "call the compiled function once before the capture, with the same shapes, dtypes and grad mode, in the same thread"
)


@contextmanager
def compiles_refused(*, if_any: bool = False) -> Iterator[None]:
    """Raise CompileInCaptureError for a compile inside the block.

    With `if_any`, a process that has never compiled anything does not load the compiler for this.
    """
    try:
        with refusing_stance(if_any=if_any):
            yield
    except RuntimeError as error:
        if is_refused_compile(error):
            msg = f"{COMPILE_PROBLEM}\nfix: {COMPILE_FIX}"
            raise CompileInCaptureError(msg) from error
        raise


@contextmanager
def device_waits_held_back() -> Iterator[None]:
    """Let `torch.cuda.synchronize()` in other threads wait for the end of the block, which captures.

    In every capture mode, CUDA and HIP refuse to wait for a device on which a stream is being captured: the other thread gets an error,
    and the capture fails.
    """
    import torch

    thread, ended, held = threading.get_ident(), threading.Event(), set[int]()
    owners = (torch.cuda, torch.accelerator)
    waits = [owner.synchronize for owner in owners]

    def make(synchronize: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(synchronize)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                held.add(threading.get_ident())
                ended.wait(_MAX_CAPTURE_S)  # not forever: the capturing thread may wait for this one
            return synchronize(*args, **kwargs)

        return wait

    patches = [AttributePatch(owner, "synchronize", make) for owner in owners]
    try:
        _let_others_leave([*waits, *(owner.synchronize for owner in owners)], {thread}, held)
        yield
    finally:
        for patch in patches:
            patch.undo()
        ended.set()


def _let_others_leave(functions: Sequence[Callable[..., Any]], own: set[int], held: set[int]) -> None:
    """Wait until no other thread runs one of these functions, but not for threads that are held in one, and not forever."""
    codes = {getattr(function, "__code__", None) for function in functions}
    ends = time.monotonic() + _MAX_WAIT_S
    while time.monotonic() < ends:
        others = [frame for thread, frame in sys._current_frames().items() if thread not in own | held]
        if not any(one.f_code in codes for frame in others for one, _ in traceback.walk_stack(frame)):
            return
        time.sleep(0.0005)


def refusing_stance(*, if_any: bool = False) -> AbstractContextManager[object]:
    """Return the `torch.compiler` stance that refuses to compile, with torch's own error."""
    return nullcontext() if if_any and not compiler_imported() else _stance("fail_on_recompile")


def is_refused_compile(error: BaseException) -> bool:
    """Return whether an error is the refusal of a compile, by torch or by `compiles_refused`."""
    return isinstance(error, CompileInCaptureError) or "fail_on_recompile" in str(error)


def is_sync_error(error: BaseException) -> bool:
    """Return whether torch raised an error because its sync debug mode found an operator that waits for the GPU."""
    return _SYNC_ERROR.name in str(error)


def uncompiled() -> AbstractContextManager[object]:
    """Return a context in which compiled functions run in eager."""
    return _stance("force_eager") if compiler_imported() else nullcontext()


def _stance(name: str) -> AbstractContextManager[object]:
    import torch

    stance: AbstractContextManager[object] = torch.compiler.set_stance(name)
    return stance


class _ReportedAsCapturing:
    """Which threads are reported as capturing. Torch's function is replaced while there are any.

    It stays replaced where a thread is not reported for a while: it is compared with the function that the capture has seen.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, list[bool]] = {}  # by thread, the innermost last: whether it is reported inside
        self._patch: AttributePatch | None = None

    @contextmanager
    def block(self, *, reported: bool) -> Iterator[None]:
        import torch

        thread = threading.get_ident()
        with self._lock:
            self._blocks.setdefault(thread, []).append(reported)
            self._patch = self._patch or AttributePatch(torch.cuda, "is_current_stream_capturing", self._replacement)
        try:
            yield
        finally:
            with self._lock:
                self._blocks[thread].pop()
                if not self._blocks[thread]:
                    del self._blocks[thread]
                if not self._blocks:
                    self._patch.undo()
                    self._patch = None

    def _replacement(self, original: Callable[[], bool]) -> Callable[[], bool]:
        def is_current_stream_capturing() -> bool:
            return (self.reports() and not is_torch_file(sys._getframe(1).f_code.co_filename)) or original()

        # `torch.compiler.assume_constant_result` would import the compiler.
        if not MARKED_CONSTANT.is_closed():
            vars(is_current_stream_capturing)[MARKED_CONSTANT.name] = True  # Dynamo evaluates it while tracing
        return is_current_stream_capturing

    def reports(self) -> bool:
        return self._blocks.get(threading.get_ident(), [False])[-1]


_reported = _ReportedAsCapturing()


@contextmanager
def reported_as_capturing() -> Iterator[None]:
    """Make `torch.cuda.is_current_stream_capturing()` return True in this thread inside the block, except for torch's own code.

    Libraries call it and take another branch during a capture: they do not read a value on the CPU, and build a mask that they
    otherwise skip. The warm-up must take that branch, or the capture would run code that never ran before. The verification must
    take it too, or it would compare two branches that round differently.
    """
    with _reported.block(reported=True):
        yield


@contextmanager
def reported_as_not_capturing() -> Iterator[None]:
    """Undo `reported_as_capturing` inside the block, for code that runs in eager also at every replay."""
    with _reported.block(reported=False) if _reported.reports() else nullcontext():
        yield


@contextmanager
def rng_state_frozen() -> Iterator[None]:
    """Inside the block, reading the GPU's random number state returns the state from before the block; setting it does nothing.

    Up to torch 2.9, reading it during a capture raises, and Dynamo reads it whenever it traces. From 2.10 on reading is allowed,
    and this does nothing.
    """
    import torch

    if not _reading_raises(torch) or not torch.cuda.is_available():
        yield
        return
    saved = {index: torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count())}

    def index_of(device: Any = "cuda") -> int:
        parsed = torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
        return int(torch.cuda.current_device() if parsed.index is None else parsed.index)

    def get(_original: Any) -> Any:
        return lambda device="cuda": saved[index_of(device)].clone()

    def set_(_original: Any) -> Any:
        return lambda new_state, device="cuda": None  # noqa: ARG005 - the signature of set_rng_state

    patches = [AttributePatch(module, "get_rng_state", get) for module in (torch.cuda, torch.cuda.random)]
    patches += [AttributePatch(module, "set_rng_state", set_) for module in (torch.cuda, torch.cuda.random)]
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.undo()


def _reading_raises(torch: ModuleType) -> bool:
    from rocsolid.model.release import compare

    return compare(str(torch.__version__), "2.10") < 0


def refuse_compiles_in_captures() -> Callable[[], None]:
    """Make every `torch.cuda.graph` block refuse compiles, where torch does not. Returns a function that undoes it."""
    patches: list[AttributePatch] = []

    def attach(_module: ModuleType) -> None:
        import torch

        needed = {name for name in (_ENTER, _EXIT) if name.releases.holds(torch.__version__)}
        if all(name.find() is not None for name in needed):
            wraps = {_ENTER: _wrap_enter, _EXIT: _wrap_exit}
            patches.extend(filter(None, (name.patch(wraps[name]) for name in (_ENTER, _EXIT) if name in needed)))

    cancel_import_hook = when_imported(_ENTER.module, attach)

    def undo() -> None:
        cancel_import_hook()
        for patch in reversed(patches):
            patch.undo()
        patches.clear()

    return undo


def _wrap_enter(original: Callable[..., Any]) -> Callable[..., Any]:
    def enter(graph: Any) -> Any:
        if _SCOPE in vars(graph):  # another guard, around this one, refuses them
            return original(graph)
        with ExitStack() as scope:
            vars(graph)[_SCOPE] = scope
            scope.callback(vars(graph).pop, _SCOPE)
            scope.enter_context(rng_state_frozen())
            entered = original(graph)
            scope.enter_context(compiles_refused())
            vars(graph)[_SCOPE] = scope.pop_all()
        return entered

    return enter


def _wrap_exit(original: Callable[..., Any]) -> Callable[..., Any]:
    def leave(graph: Any, kind: Any, error: Any, trace: Any) -> Any:
        scope: ExitStack | None = vars(graph).get(_SCOPE)
        if scope is None or vars(graph).get(_LEAVING):
            return original(graph, kind, error, trace)
        scope.callback(vars(graph).pop, _LEAVING)
        vars(graph)[_LEAVING] = True
        try:
            original(graph, kind, error, trace)
        except Exception:
            # Up to torch 2.14 a capture that cannot be ended leaves its stream current.
            if (stream_context := _STREAM.of(graph)) is not None:
                stream_context.__exit__(kind, error, trace)
            if error is None:
                scope.close()
                raise
            # The error inside the block is the cause, so that one is raised.
        return scope.__exit__(kind, error, trace)

    return leave
