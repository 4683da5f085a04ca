"""The record backend: records the operators of a call on the CPU and replays them with the rules of a GPU graph.

It has the properties that make GPU graphs difficult: inputs and outputs have fixed addresses, no Python runs during a replay, a
replay uses the old memory of a weight that was moved, no value can be read on the CPU, and random numbers advance with every
replay. So capture code can be tested without a GPU.
It has no memory pools and no driver; streams and events exist only with a simulated runtime (`simulated_runtime.py`).
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch.overrides import TorchFunctionMode

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.torchapi.dispatch import (
    OperatorMode,
    changes_only_metadata,
    only_allocates,
    writes_in_place,
)
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.graphs.replay_checks import storage_id
from rocsolid.torchapi.private_api import AttributePatch

HOST_READS: Final = {
    torch.Tensor.cpu: "copies a tensor to the CPU",
    torch.Tensor.numpy: "reads a tensor on the CPU",
    torch.Tensor.tolist: "reads a tensor on the CPU",
    torch.Tensor.__array__: "reads a tensor on the CPU",
    torch.Tensor.__repr__: "reads a tensor on the CPU to print it",
}
_RNG_FUNCTIONS: Final = ("get_rng_state", "set_rng_state", "manual_seed", "seed", "initial_seed")
_INDEXING: Final = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


def _refuse(reason: Reason, operation: str, why: str, fix: str) -> CannotCapture:
    from rocsolid.runtime.capture.diagnosis import refuse_operation
    from rocsolid.torchapi.user_frames import user_code_line

    return refuse_operation(reason, operation, why, fix, user_code_line())


class Recording(OperatorMode):
    """Receives every operator below autograd and autocast, runs it, and stores what is needed to run it again."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, Callable[[], object]]] = []  # (operator, function that runs it again)
        self.storages: dict[int, int] = {}  # bytes by storage id
        self.refusal: CannotCapture | None = None

    def refuse(self, refusal: CannotCapture) -> CannotCapture:
        """Remember the first refusal: the capture fails even when the function catches the exception."""
        self.refusal = self.refusal or refusal
        return refusal

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Refuse or run an operator, and record it."""
        self._check(func, args)
        out = func(*args, **kwargs)
        if not changes_only_metadata(func):
            self._record(func, args, kwargs, out)
        return out

    def _check(self, func: Any, args: Any) -> None:
        name = func.name().partition(".")[0]
        tags = func.tags
        if torch.Tag.data_dependent_output in tags:
            raise self.refuse(
                _refuse(
                    Reason.HOST_SYNC,
                    name,
                    "copies a value to the CPU, which is not possible during a capture",
                    "keep the value on the GPU, e.g. torch.where(condition, a, b), or read it outside the captured function",
                )
            )
        masked = name in _INDEXING and any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
        if masked and name != "aten::index" and args[2].numel() == 1:
            masked = False  # one value for the whole mask is a masked fill, whose shape is fixed
        # Operators of _INDEXING have the tag too, but only a mask makes their shape depend on values.
        if masked or (torch.Tag.dynamic_output_shape in tags and name not in _INDEXING):
            raise self.refuse(
                _refuse(
                    Reason.DATA_SHAPE,
                    name,
                    "has a shape that depends on values, and a graph has fixed shapes",
                    "keep the shape fixed, e.g. torch.where(mask, x, 0) instead of x[mask]",
                )
            )
        # A tensor without dimensions, such as torch.tensor(3.0), is a constant of the kernel on a GPU too, like a Python number.
        if name == "aten::lift_fresh" and args[0].dim() and args[0].numel():
            raise self.refuse(
                _refuse(
                    Reason.HOST_COPY,
                    "torch.tensor",
                    "copies data from the CPU, and a replay does not repeat that",
                    "create the tensor once outside the function, or compute it on the GPU (torch.arange, torch.full)",
                )
            )

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        fixed_args, fixed_kwargs = _fixed(args), _fixed(kwargs)
        input_storages = {storage_id(tensor) for tensor in _tensors((args, kwargs))}
        new_outputs = [
            (index, tensor.detach())
            for index, tensor in enumerate(_tensors(out))
            if storage_id(tensor) not in input_storages
        ]
        for _, tensor in new_outputs:
            self.storages[storage_id(tensor)] = tensor.untyped_storage().nbytes()
        if only_allocates(func) or not (new_outputs or writes_in_place(func)):
            return

        grad_mode = torch.is_grad_enabled()

        def run_again() -> None:
            with torch.set_grad_enabled(grad_mode):  # some operators, such as an LSTM, return more for a backward pass
                result = func(*fixed_args, **fixed_kwargs)
            if new_outputs:
                results = list(_tensors(result))
                for index, target in new_outputs:
                    if results[index].shape != target.shape:
                        raise _shape_changed(func.name())
                    target.copy_(results[index])

        self.steps.append((func.name(), run_again))


def _shape_changed(operator: str) -> CannotCapture:
    problem = f"`{operator}` has a shape that depends on values, and a graph has fixed shapes"
    return CannotCapture(Reason.DATA_SHAPE, problem, fix="run this operator outside the captured function")


class _HostReads(TorchFunctionMode):  # type: ignore[misc]
    """Refuses calls that read a tensor on the CPU.

    `Recording` does not see these calls, because on a CPU tensor they run no operator. On a GPU tensor they run the copy to the CPU.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOST_READS:
            name = getattr(func, "__name__", str(func))
            why = f"{HOST_READS[func]}, which is not possible during a capture"
            fix = "call it on the result, outside the captured function"
            raise self._recording.refuse(_refuse(Reason.HOST_SYNC, f"Tensor.{name}", why, fix))
        return func(*args, **(kwargs or {}))


class RecordGraph:
    """Recorded operators that can be replayed."""

    def __init__(self, recording: Recording) -> None:
        self._steps = recording.steps
        self._replay = [run_again for _, run_again in recording.steps]
        self.nodes: int | None = len(recording.steps)
        self.bytes = sum(recording.storages.values())

    def replay(self) -> None:
        """Run every operator again, into the same memory."""
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            for run_again in self._replay:
                run_again()

    def close(self) -> None:
        """Free the memory."""
        self._steps, self._replay = [], []

    def dump(self, path: str) -> None:
        """Write one operator per line."""
        Path(path).write_text("".join(f"{number} {name}\n" for number, (name, _) in enumerate(self._steps)))


class CaptureRules(Protocol):
    """The part of a simulated runtime that a recording needs."""

    def capturing(self, recording: Any) -> AbstractContextManager[None]:
        """Context in which stream and event calls follow the capture rules of the runtime."""
        ...

    def end_capture(self) -> None:
        """Raise CannotCapture when the runtime could not end the capture."""
        ...


class RecordSession:
    """One recording."""

    executes = True

    def __init__(self, rules: CaptureRules | None = None) -> None:
        self._rules = rules
        self._recording = Recording()
        self._scope: ExitStack | None = None

    def begin(self) -> None:
        """Start recording."""
        self._recording = Recording()
        with ExitStack() as scope:  # closed if one of them cannot be entered
            scope.enter_context(_rng_state_refused(self._recording))
            # Compiled code calls no operators that could be recorded. In eager the function computes the same.
            scope.enter_context(uncompiled())
            if self._rules is not None:
                scope.enter_context(self._rules.capturing(self._recording))
            scope.enter_context(_HostReads(self._recording))
            scope.enter_context(self._recording)
            self._scope = scope.pop_all()

    def end(self) -> RecordGraph:
        """Return the graph. Raises the first refusal, even when the function caught the exception."""
        try:
            if self._recording.refusal is None and self._rules is not None:
                self._rules.end_capture()
        finally:
            self.abort()
        if self._recording.refusal is not None:
            raise self._recording.refusal
        return RecordGraph(self._recording)

    def abort(self) -> None:
        """Stop recording."""
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.close()


class HostOrdering:
    """Ordering on the CPU, where a call has finished when it returns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def wait_for_replays(self) -> bool:
        """Return True, all replays have finished: on the CPU a replay has finished when it returns."""
        return True

    def wait_for_host_reads(self) -> None:
        """Does nothing on the CPU: a replay has read its inputs when it returns."""

    def mark_replay(self) -> None:
        """Does nothing on the CPU: no later replay has to wait for this one."""

    def synchronize(self) -> None:
        """Does nothing on the CPU."""


class RecordBackend:
    """Captures by recording operators on the CPU."""

    name = "record"
    uses_gpu = False

    def __init__(self, rules: CaptureRules | None = None) -> None:
        self._rules = rules

    def capture_scope(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def warm_up_scope(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def new_session(self, generators: Sequence[Any]) -> RecordSession:  # noqa: ARG002 - unused: replayed operators use the CPU generators directly
        """Return a new recording."""
        return RecordSession(self._rules)

    def ordering(self) -> HostOrdering:
        """Return a new ordering for each function: only graphs that share a memory pool need a common one, and recorded graphs share none."""
        return HostOrdering()

    def missing_memory(self, needed_bytes: int) -> str:  # noqa: ARG002 - the interface of a backend
        """Return an empty string: CPU memory is not limited here."""
        return ""


@contextmanager
def _rng_state_refused(recording: Recording) -> Iterator[None]:
    """Refuse reading and setting the random number state in this thread: it happens on the CPU, and no replay repeats it."""
    thread = threading.get_ident()

    def refusing(name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() != thread:
                    return original(*args, **kwargs)
                why = "uses the random number state on the CPU, and a replay does not repeat that"
                fix = "call it before the captured function"
                raise recording.refuse(_refuse(Reason.RNG_STATE, f"torch.{name}", why, fix))

            return call

        return make

    patches = [
        AttributePatch(owner, name, refusing(name)) for name in _RNG_FUNCTIONS for owner in (torch, torch.random)
    ]
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.undo()


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
    """Return the value with tensors that keep their present memory, even if the original tensors are moved later."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)):
        return type(value)(_fixed(item) for item in value)
    if isinstance(value, dict):
        return {key: _fixed(item) for key, item in value.items()}
    return value
