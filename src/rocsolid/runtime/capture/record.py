"""A graph on the CPU: a tape of operations with fixed memory, played again without the Python that made it.

It keeps what makes device graphs hard: inputs and outputs at fixed addresses, the function's body not run again, weights that
were moved since stay as they were, values cannot be read on the host, random numbers go on. So code can be tested for capture
on a machine without a device. It has no memory pools and no driver, and streams only where a runtime is played (`playing`).
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture import playing
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.torchapi.dispatch import DispatchMode, is_view, untouched_when_replayed, writes_in_place
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.graphs.memory import storage_number
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.user_frames import user_location

_READS: Final = {
    torch.Tensor.cpu: "copies a tensor to the host",
    torch.Tensor.numpy: "reads a tensor on the host",
    torch.Tensor.tolist: "reads a tensor on the host",
    torch.Tensor.__array__: "reads a tensor on the host",
    torch.Tensor.__repr__: "prints a tensor, which reads it on the host",
}
_RNG: Final = ("get_rng_state", "set_rng_state", "manual_seed", "seed", "initial_seed")
_MASKED: Final = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


def refuse(cause: Reason, operation: str, fix: str) -> CannotCapture:
    """Says which operation at which line cannot be captured, and what to write instead."""
    place = user_location()
    where = f" at {place}" if place else ""
    return CannotCapture(cause, f"{operation}{where} {fix}", place)


class _Tape(DispatchMode):  # type: ignore[misc]
    """Hears every operation below autograd and autocast, runs it, and keeps what is needed to run it again."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, Callable[[], object]]] = []
        self.storages: dict[int, int] = {}
        self.refused: CannotCapture | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._allow(func, args)
        out = func(*args, **kwargs)
        if not is_view(func):
            self._keep(func, args, kwargs, out)
        return out

    def _allow(self, func: Any, args: Any) -> None:
        name = func.name().partition(".")[0]
        tags = func.tags
        try:
            if torch.Tag.data_dependent_output in tags:
                raise refuse(
                    Reason.HOST_READ, name, "reads a value on the host: keep it on the device (torch.where, a tensor)"
                )
            masked = name in _MASKED and any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
            if masked and name != "aten::index" and args[2].numel() == 1:
                masked = False  # one value for the whole mask is a masked fill, with no shape to find out
            # Indexing is tagged for the sake of masks alone.
            if masked or (torch.Tag.dynamic_output_shape in tags and name not in _MASKED):
                raise refuse(
                    Reason.DATA_SHAPE,
                    name,
                    "makes a tensor whose shape depends on values: use torch.where, a mask, or a fixed size",
                )
            if name == "aten::lift_fresh" and args[0].numel() > 1:
                raise refuse(
                    Reason.HOST_COPY,
                    "torch.tensor",
                    "makes a tensor from host data: make it once outside the function, or compute it (torch.arange, torch.full)",
                )
        except CannotCapture as refused:
            self.refused = self.refused or refused
            raise

    def _keep(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        fixed_args, fixed_kwargs = _fixed(args), _fixed(kwargs)
        outs = list(_tensors(out))
        sources = {storage_number(tensor) for tensor in _tensors((args, kwargs))}
        fresh = [
            (number, tensor.detach()) for number, tensor in enumerate(outs) if storage_number(tensor) not in sources
        ]
        for _, tensor in fresh:
            self.storages[storage_number(tensor)] = tensor.untyped_storage().nbytes()
        if untouched_when_replayed(func) or not (fresh or writes_in_place(func)):
            return

        def again() -> None:
            result = func(*fixed_args, **fixed_kwargs)
            if fresh:
                results = list(_tensors(result))
                for number, target in fresh:
                    target.copy_(results[number])

        self.steps.append((func.name(), again))


class _Host(TorchFunctionMode):  # type: ignore[misc]
    """Hears what never becomes an operation on a CPU tensor, and would copy to the host on a device."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS:
            refused = refuse(
                Reason.HOST_READ, getattr(func, "__name__", str(func)), f"{_READS[func]}: do it outside the function"
            )
            self._tape.refused = self._tape.refused or refused
            raise refused
        return func(*args, **(kwargs or {}))


class RecordGraph:
    """A tape that can be played."""

    def __init__(self, tape: _Tape) -> None:
        self._steps = tape.steps
        self._play = [again for _, again in tape.steps]
        self.nodes: int | None = len(tape.steps)
        self.bytes = sum(tape.storages.values())

    def replay(self) -> None:
        """Every operation once more, into the same memory."""
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            for again in self._play:
                again()

    def close(self) -> None:
        """Let go of the memory."""
        self._steps, self._play = [], []

    def dump(self, path: str) -> None:
        """One operation a line."""
        Path(path).write_text("".join(f"{number} {name}\n" for number, (name, _) in enumerate(self._steps)))


class RecordSession:
    """A recording under way."""

    def __init__(self) -> None:
        self._tape = _Tape()
        self._scope: ExitStack | None = None

    def begin(self) -> None:
        """Listen."""
        self._tape = _Tape()
        scope = ExitStack()
        scope.enter_context(_random_state_refused(self._tape))
        # Compiled code runs no operations that a tape could hear; uncompiled it computes the same.
        scope.enter_context(uncompiled())
        scope.enter_context(playing.listening(self._tape))
        scope.enter_context(_Host(self._tape))
        scope.enter_context(self._tape)
        self._scope = scope

    def end(self) -> RecordGraph:
        """The tape, unless something was refused and swallowed on the way."""
        try:
            if self._tape.refused is None:
                playing.end_capture()
        finally:
            self.abort()
        if self._tape.refused is not None:
            raise self._tape.refused
        return RecordGraph(self._tape)

    def abort(self) -> None:
        """Stop listening."""
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.close()


class Unordered:
    """On the CPU a call is over when it returns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def before(self) -> bool:
        """Nothing to wait for."""
        return True

    def host_may_write(self) -> None:
        """It may."""

    def replayed(self) -> None:
        """Nothing to mark."""

    def settle(self) -> None:
        """Nothing runs on."""


class RecordBackend:
    """Captures on a tape."""

    name = "record"

    def section(self) -> AbstractContextManager[None]:
        """Nothing to switch to."""
        return nullcontext()

    def warming(self) -> AbstractContextManager[None]:
        """Nothing to switch to here either."""
        return nullcontext()

    def session(self, generators: Sequence[Any]) -> RecordSession:  # noqa: ARG002 - a tape draws from the generators themselves
        """A new recording."""
        return RecordSession()

    def ordering(self) -> Unordered:
        """None is needed."""
        return Unordered()

    def room_for(self, wanted_bytes: int) -> str:  # noqa: ARG002 - the host's memory is not ours to count
        """There is."""
        return ""

    def watched(self, body: Callable[[], Any]) -> None:
        """The tape has named it already."""


@contextmanager
def _random_state_refused(tape: _Tape) -> Iterator[None]:
    """Reading or setting the state of random numbers is the host's work, and no graph repeats it."""
    thread = threading.get_ident()

    def guarded(name: str) -> Callable[[Any], Any]:
        def make(plain: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() != thread:
                    return plain(*args, **kwargs)
                refused = refuse(
                    Reason.RANDOM_STATE, f"torch.{name}", "is done on the host, once: do it outside the function"
                )
                tape.refused = tape.refused or refused
                raise refused

            return call

        return make

    swaps = [AttributePatch(owner, name, guarded(name)) for name in _RNG for owner in (torch, torch.random)]
    try:
        yield
    finally:
        for swap in reversed(swaps):
            swap.undo()


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _fixed(value: Any) -> Any:
    """The value with every tensor tied to the memory it has now, whatever is done to the tensor later."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)):
        return type(value)(_fixed(item) for item in value)
    if isinstance(value, dict):
        return {key: _fixed(item) for key, item in value.items()}
    return value
