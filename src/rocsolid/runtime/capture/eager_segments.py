"""Splits a capture at some modules: they run in eager between the graphs of the rest. Or at each read of a value, which a replay repeats.

This is for modules that cannot be captured, such as work on the CPU or a branch on values. The module must return tensors of the
same shapes every time.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from rocsolid.errors import UsageError
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backends.base import Graph, Session
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.capture_once import Scope, patched_forwards
from rocsolid.runtime.capture.reachable_state import ReachableState, collect_reachable
from rocsolid.runtime.capture.state_snapshot import InitialState, without_repeats
from rocsolid.torchapi.graphs.replay_checks import storage_id
from rocsolid.torchapi.pytree import (
    CallResult,
    Flattened,
    Part,
    PartContents,
    caches_in,
    flatten_result,
    leaves,
    parts_of,
    run_with_parts,
)

_MAX_READS: Final = 16  # in one call: each of them waits for the GPU
_READS: Final = frozenset(
    {
        torch.Tensor.item,
        torch.Tensor.tolist,
        torch.Tensor.__bool__,
        torch.Tensor.__int__,
        torch.Tensor.__float__,
        torch.Tensor.__index__,
        torch.Tensor.is_nonzero,
        torch.Tensor.equal,
        torch.Tensor.allclose,
        torch.is_nonzero,
        torch.equal,
        torch.allclose,
    }
)


class EagerSegment:
    """A module's call between two graphs. A replay calls the module with the results of the graph before."""

    nodes: int | None = None
    bytes = 0

    def __init__(
        self, name: str, module: Any, forward: Callable[..., Any], args: Any, kwargs: Any, borrowed: set[int]
    ) -> None:
        """Call the module. `borrowed` has storage ids of what the function reaches: a result there is never written to."""
        self._name = name
        self._module = module
        self._forward = forward
        self._args, self._kwargs = args, kwargs
        given = flatten_result([*args, kwargs], "arguments", open_caches=False)
        # The module may change the caches that it gets: each replay starts from what they contain now.
        self._parts = [part for cache in caches_in([*args, kwargs], "arguments") for part in parts_of(cache)]
        self._before = PartContents(self._parts)
        passed = [leaf.value for leaf in given.leaves if isinstance(leaf.value, torch.Tensor)]
        self._borrowed = {*borrowed, *map(storage_id, (*passed, *self._before.tensors()))}
        called = self._call()
        self.result = called.value
        self._captured: Flattened = flatten_result(called)
        after = flatten_result([*args, kwargs], "arguments", open_caches=False)
        _refuse_changed_arguments(name, module, given, after)
        # The function may have set them itself, e.g. with @torch.inference_mode().
        self._inference_mode, self._grad_mode = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def replay(self) -> None:
        """Call the module in the modes of the capture, and copy its results to where the next graph reads them."""
        # In this order, because entering or leaving inference mode also sets the grad mode.
        with torch.inference_mode(self._inference_mode), torch.set_grad_enabled(self._grad_mode):
            self._call_module()

    def _call(self) -> CallResult:
        return run_with_parts(self._parts, lambda: self._forward(*self._args, **self._kwargs))

    def _call_module(self) -> None:
        self._before.restore()
        result = flatten_result(self._call())
        if result.structure != self._captured.structure:
            problem = f"the result of module `{self._name}` has a different structure than during the capture"
            raise self._refusal(problem)
        for new, old in zip(result.leaves, self._captured.leaves, strict=True):
            if not isinstance(old.value, torch.Tensor):
                if new.value != old.value and not isinstance(new.value, Part):
                    raise self._changed(new.path, repr(new.value), repr(old.value))
            elif new.value.shape != old.value.shape or new.value.dtype != old.value.dtype:
                raise self._changed(new.path, _dtype_and_shape(new.value), _dtype_and_shape(old.value))
            elif not self._is_in_place(new.path, new.value, old.value):
                with torch.no_grad():
                    without_repeats(old.value).copy_(without_repeats(new.value))

    def _is_in_place(self, path: str, new: Any, old: Any) -> bool:
        """Return whether a result is where the next graph reads it. Raises CannotCapture if it is not, and must not be copied there."""
        same_memory = storage_id(new) == storage_id(old)
        if same_memory and new.data_ptr() == old.data_ptr() and new.stride() == old.stride():
            return True
        repeats = without_repeats(old).shape != without_repeats(new).shape
        if (same_memory or storage_id(old) in self._borrowed or repeats) and old.numel():
            what = "an argument, or memory that the model keeps"
            raise self._changed(
                path, "another tensor", what if storage_id(old) in self._borrowed else "a view of another part"
            )
        return False

    def _changed(self, path: str, now: str, before: str) -> CannotCapture:
        place = "" if path == "result" else f" in `{path}`"
        problem = f"module `{self._name}` returned {now}{place}; during the capture it returned {before}"
        return self._refusal(problem)

    def _refusal(self, problem: str) -> CannotCapture:
        fix = f"make `{self._name}` return tensors of the same shapes and dtypes every time"
        return CannotCapture(Reason.EAGER_MODULE, problem, fix=fix, module=self._module)

    def close(self) -> None:
        """Free the arguments of the call."""
        self._args, self._kwargs, self._module, self.result = (), {}, None, None
        self._parts, self._before = [], PartContents(())

    def dump(self, path: str) -> None:
        """Write nothing, because there is no graph here."""


def _dtype_and_shape(tensor: Any) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}".removeprefix("torch.")


class CheckedRead:
    """A value that Python read between two graphs, such as `mask.all()` in an `if`. A replay reads it again, and must read the same."""

    nodes: int | None = None
    bytes = 0

    def __init__(self, read: Callable[[], Any]) -> None:
        from rocsolid.runtime.capture.diagnosis import current_module
        from rocsolid.torchapi.user_frames import user_code_line

        self._read: Callable[[], Any] | None = read
        self._code = user_code_line()
        module = current_module()  # runs in eager instead, if the value is another one
        self._module = weakref.ref(module) if module is not None else None  # it may hold the captured function
        self.value = read()

    def replay(self) -> None:
        """Read the value. Raises CannotCapture if it is another one: Python would do something else."""
        value = self._read() if self._read is not None else self.value
        if repr(value) != repr(self.value):
            code = self._code
            what = code.text[code.start : code.end] if code and code.end else "a value that Python reads"
            problem = f"`{what}` is {value!r}; during the capture it was {self.value!r}"
            raise CannotCapture(Reason.HOST_SYNC, problem, code=code, module=self._module() if self._module else None)

    def close(self) -> None:
        """Free the tensor."""
        self._read = None

    def dump(self, path: str) -> None:
        """Write nothing, because there is no graph here."""


class ReadsIn(TorchFunctionMode):  # type: ignore[misc]
    """Runs each read of a value inside a scope."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self._scope() if func in _READS else nullcontext():
            return func(*args, **(kwargs or {}))


class _SplittingSession(TorchFunctionMode):  # type: ignore[misc]
    """A capture that ends a graph at each read of a value, and begins the next one after it.

    It is the innermost mode while it records, and is left before the session leaves its own.
    """

    def __init__(self, session: Session, parts: list[Graph], outside: Scope, failures: list[BaseException]) -> None:
        super().__init__()
        self._session, self._parts, self._outside = session, parts, outside
        self._failures = failures
        self.executes = session.executes
        self.is_recording = False

    def begin(self) -> None:
        """Begin a graph."""
        self._session.begin()
        self.__enter__()
        self.is_recording = True

    def end(self) -> Graph:
        """End a graph."""
        self.leave()
        return self._session.end()

    def abort(self) -> None:
        """Clean up after a failed capture."""
        self.leave()
        self._session.abort()

    def leave(self) -> None:
        """Split no more."""
        if self.is_recording:
            self.is_recording = False
            self.__exit__(None, None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _READS or not (
            self.executes or _any_on_gpu((args, kwargs))
        ):  # a value on the CPU is there already
            return func(*args, **(kwargs or {}))
        with _remembered(self._failures):
            return self._read(lambda: func(*args, **(kwargs or {})))

    def _read(self, read: Callable[[], Any]) -> Any:
        """End a graph, read a value, and begin the next graph. Torch has left this mode meanwhile."""
        if sum(isinstance(part, CheckedRead) for part in self._parts) == _MAX_READS:
            problem = f"more than {_MAX_READS} values are read in one call"
            raise CannotCapture(Reason.HOST_SYNC, problem)
        self._parts.append(self._session.end())
        with self._outside():
            if not self.executes:
                _replay_all(self._parts[-1:])
            checked = CheckedRead(read)
        self._parts.append(checked)
        self._session.begin()
        return checked.value


def _any_on_gpu(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_cuda for leaf in leaves(value))


class SegmentedGraph:
    """Graphs with eager segments between them, replayed in order.

    `save_state` returns what a replay changes; it is restored when an eager segment fails, because the call then runs in eager.
    """

    def __init__(self, parts: Sequence[Graph], save_state: Callable[[], InitialState] | None) -> None:
        self._parts = list(parts)
        self._save_state = save_state
        counts = [part.nodes for part in parts if not isinstance(part, (EagerSegment, CheckedRead))]
        self.nodes: int | None = sum(n for n in counts if n is not None) if None not in counts else None
        self.bytes = sum(part.bytes for part in parts)

    def replay(self) -> None:
        """Replay every part in order."""
        before = self._save_state() if self._save_state is not None else None
        try:
            _replay_all(self._parts)
        except CannotCapture:
            if before is not None:
                before.restore()
            raise

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.close()
        self._parts, self._save_state = [], None

    def dump(self, path: str) -> None:
        """Write each graph to a file of its own."""
        for index, part in enumerate(self._parts):
            part.dump(f"{path}.{index}")


def _replay_all(parts: Sequence[Graph]) -> None:
    for part in parts:
        if part.nodes != 0:  # an empty graph may own memory that a later one uses, so it is kept
            part.replay()


def capture_segments(
    session: Session,
    body: Callable[[], Any],
    modules: Mapping[str, Any],
    save_state: Callable[[], InitialState] | None,
    outside: Scope,
    state: ReachableState,
    parts: list[Graph],
    *,
    checks_reads: bool,
) -> tuple[Graph, Any]:
    """Capture the body; each call of one of these modules ends one graph, and the next graph begins after it.

    The modules are called inside `outside()`. The graphs are added to `parts`, which the caller closes after a failure.
    With `checks_reads` it is the same at each read of a value.
    """
    in_eager: list[str] = []
    failures: list[BaseException] = []
    reached = {storage_id(ref.value) for ref in state.tensors}
    with ExitStack() as scope:
        if checks_reads:
            session = _SplittingSession(session, parts, outside, failures)
            scope.callback(session.leave)
        for name, module in modules.items():
            scope.enter_context(_end_graph_at(name, module, session, parts, in_eager, outside, reached, failures))
        session.begin()
        result = body()
        if failures:  # the function caught the exception, and has run without a capture since
            raise failures[0]
        last = session.end()
    return (SegmentedGraph([*parts, last], save_state), result) if parts else (last, result)


def _end_graph_at(
    name: str,
    module: Any,
    session: Session,
    parts: list[Graph],
    in_eager: list[str],
    outside: Scope,
    reached: set[int],
    failures: list[BaseException],
) -> AbstractContextManager[None]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if in_eager:  # it is called by another eager module
                return original(*args, **kwargs)
            with _remembered(failures):
                return between_graphs(original, args, kwargs)

        return forward

    def between_graphs(original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        parts.append(session.end())
        in_eager.append(name)
        try:
            with outside():
                if not session.executes:
                    # The module must get real values: an index from memory that was never written can end all use of the GPU.
                    _replay_all(parts[-1:])
                segment = EagerSegment(name, module, original, args, kwargs, reached)
        finally:
            in_eager.pop()
        parts.append(segment)
        session.begin()
        return segment.result

    return patched_forwards([(module, make)])


@contextmanager
def _remembered(failures: list[BaseException]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        failures.append(error)
        raise


def _refuse_changed_arguments(name: str, module: Any, before: Flattened, after: Flattened) -> None:
    """Raise CannotCapture if a module changed an object that it was passed, other than a cache: every replay would change it again."""
    changed = [old.path for old, new in zip(before.leaves, after.leaves, strict=False) if old.value is not new.value]
    if changed or before.structure != after.structure:
        what = f"`{changed[0]}`" if changed else "one of its arguments"
        problem = f"module `{name}` changes {what} in Python, and every replay would change it again"
        fix = f"run the module around it in eager, or call without the object that `{name}` changes (use_cache=False)"
        raise CannotCapture(Reason.EAGER_MODULE, problem, fix=fix, module=module)


def find_eager_modules(function: Callable[..., Any], eager_modules: Sequence[Any]) -> Mapping[str, Any]:
    """Return the modules by name. Each is given by its name or as the module itself."""
    if not eager_modules:
        return {}
    modules = dict(collect_reachable(function).named_modules)
    by_name: dict[str, Any] = {}
    for wanted in eager_modules:
        if isinstance(wanted, torch.nn.Module):
            name = next((path for path, module in modules.items() if module is wanted), type(wanted).__name__)
            by_name[name] = wanted
        elif wanted in modules:
            by_name[wanted] = modules[wanted]
        else:
            known = ", ".join(path for path in modules if path)
            msg = f"eager_modules= names {wanted!r}, which is not a module of the function; it has: {known}"
            raise UsageError(msg)
    return by_name
