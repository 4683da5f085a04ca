"""Data on the CPU that a call on a GPU uses.

Constants: tensors that a call makes from Python numbers, such as `torch.tensor([0, 2], device="cuda")` or the list in `x[:, [0, 2]]`.
Each of them is a copy from the CPU, which no capture allows. Their numbers are the same in every call: numbers of the code, of watched
state, or of arguments that belong to the graph. So the tensors are made before the capture, and the capture copies them on the GPU.

Arguments on the CPU: a graph can copy them to the GPU, but a number that Python reads from them becomes a constant of the graph.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from rocsolid.errors import first_line
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backends.record import HOST_READS
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.capture_once import NOTHING_ASIDE, SetAside
from rocsolid.torchapi.dispatch import OperatorMode, only_allocates, returns_view
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.graphs.replay_checks import storage_id
from rocsolid.torchapi.pytree import leaves

_FROM_NUMBERS: Final = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor})
_TO_DEVICE: Final = frozenset({torch.Tensor.to, torch.Tensor.cuda})
_MASKS: Final = (torch.bool, torch.uint8)
_INDEXING: Final = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})
_NUMBERS: Final = (bool, int, float, complex)
_OPTIONS: Final = (*_NUMBERS, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


@dataclass(frozen=True)
class HostConstant:
    """A tensor on the device, and the call that makes it."""

    key: Hashable
    tensor: Any


class _Pausing:
    """Something that observes a run, except inside the modules that run in eager at every replay."""

    is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Observe nothing inside the block."""
        was_paused, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = was_paused


class _ConstantMode(_Pausing, TorchFunctionMode):  # type: ignore[misc]
    """Finds the calls that make a tensor from Python numbers on the device of the captured call."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self._device = device
        self._cpu_constants: dict[int, tuple[Any, Hashable]] = {}  # by id: made on the CPU, not used for anything since

    def constant(self, key: Hashable, make: Any) -> Any:
        """Return the tensor of a call on the device."""
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.is_paused:
            return func(*args, **kwargs)
        if func in _FROM_NUMBERS:
            return self._from_numbers(func, args, kwargs)
        if func in _INDEXING and args[0].device.type == self._device.type:
            index = self._index_without_lists(args[1], args[0])
            return func(args[0], index, *(self._assigned(value, index, args[0]) for value in args[2:]), **kwargs)
        if func in _TO_DEVICE and id(args[0]) in self._cpu_constants and _all_options((args[1:], kwargs)):
            device = kwargs.get("device", *args[1:2]) if func is torch.Tensor.to else "cuda"
            if self._is_captured(device):
                _, made_by = self._cpu_constants[id(args[0])]
                return self.constant((made_by, repr((args[1:], kwargs))), lambda: func(*args, **kwargs))
        elif self._cpu_constants:
            for value in leaves((args, kwargs)):
                self._cpu_constants.pop(id(value), None)  # it may be written to
        return func(*args, **kwargs)

    def _is_captured(self, device: Any) -> bool:
        """Return whether an argument names the device that the call is captured on."""
        if not isinstance(device, (str, int, torch.device)):
            return False
        named = torch.device(device)
        return named.type == self._device.type and named.index in (None, self._device.index)

    def _from_numbers(self, func: Any, args: Any, kwargs: Any) -> Any:
        base = args[:1] if func is torch.Tensor.new_tensor else ()
        data = args[len(base) :]
        special = kwargs.get("requires_grad") or kwargs.get("pin_memory")
        if special or not data or not _is_numbers(data[0]) or not _all_options((data[1:], kwargs)):
            return func(*args, **kwargs)
        with_base = [(tensor.dtype, tensor.device) for tensor in base]
        key = (func.__name__, repr((data, kwargs)), repr(with_base), torch.get_default_dtype())
        device = kwargs.get("device")
        if device is None:
            device = base[0].device if base else torch.get_default_device()
        if self._is_captured(device):
            return self.constant(key, lambda: func(*args, **kwargs))
        tensor = func(*args, **kwargs)
        self._cpu_constants[id(tensor)] = tensor, key
        return tensor

    def _index_without_lists(self, index: Any, tensor: Any) -> Any:
        """Return the index with tensors in place of lists of integers."""
        if isinstance(index, tuple):
            return tuple(self._index_without_lists(part, tensor) if isinstance(part, list) else part for part in index)
        if not isinstance(index, list) or not index or any(type(item) is not int for item in index):
            return index
        return self.constant(("index", tuple(index)), lambda: torch.tensor(index, device=tensor.device))

    def _assigned(self, value: Any, index: Any, tensor: Any) -> Any:
        """Return the value to write; a number for places given by integer tensors is copied from the CPU, too."""
        parts = index if isinstance(index, tuple) else (index,)
        by_integers = any(isinstance(part, torch.Tensor) and part.dtype not in _MASKS for part in parts)
        if type(value) not in _NUMBERS or not by_integers:
            return value
        key = ("value", repr(value), tensor.dtype)
        return self.constant(key, lambda: torch.tensor(value, dtype=tensor.dtype, device=tensor.device))


class ConstantRecorder(_ConstantMode):
    """Keeps the constants of a run, in order."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.constants: list[HostConstant] = []

    def constant(self, key: Hashable, make: Any) -> Any:
        """Make the tensor, and keep a copy."""
        tensor = make()
        self.constants.append(HostConstant(key, tensor.detach().clone()))
        return tensor


class ConstantServer(_ConstantMode):
    """Returns copies of recorded constants, in the same order."""

    def __init__(self, device: Any, constants: Sequence[HostConstant]) -> None:
        super().__init__(device)
        self._constants = iter(constants)
        self.refusal: CannotCapture | None = None

    def constant(self, key: Hashable, make: Any) -> Any:  # noqa: ARG002 - the tensor is there already
        """Return a copy of the next constant; raises CannotCapture if the call is another one than in the recorded run."""
        known = next(self._constants, None)
        if known is None or known.key != key:
            self.refusal = self.refusal or _refuse_other_values()
            raise self.refusal
        return known.tensor.clone()


def _refuse_other_values() -> CannotCapture:
    from rocsolid.runtime.capture.diagnosis import refuse_operation
    from rocsolid.torchapi.user_frames import user_code_line

    why = "copies other values from the CPU in every run, and a replay would repeat the first ones"
    fix = "pass the values as a tensor argument"
    return refuse_operation(Reason.HOST_COPY, "torch.tensor", why, fix, user_code_line())


def _is_numbers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_numbers, value))
    return type(value) in _NUMBERS


def _all_options(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_all_options, value))
    if isinstance(value, dict):
        return all(map(_all_options, value.values()))
    return isinstance(value, _OPTIONS)


def find_host_read(
    body: Callable[[], Any], arguments: Mapping[str, Any], device: Any, aside: SetAside = NOTHING_ASIDE
) -> CannotCapture | None:
    """Run a call on a GPU in eager, and return the refusal of the first operation that reads one of these tensors on the CPU."""
    paths = {storage_id(tensor): path for path, tensor in arguments.items() if tensor.device.type == "cpu"}
    operators = _OperatorReads(paths, device)
    functions = _FunctionReads(paths)
    try:
        with uncompiled(), aside.modules_in(functions.paused), aside.modules_in(operators.paused), functions, operators:
            body()
    except Exception as error:  # noqa: BLE001 - the call did not fail before, so it cannot be checked
        names = ", ".join(f"`{path}`" for path in paths.values())
        problem = (
            f"whether the call reads {names} on the CPU cannot be checked ({type(error).__name__}: {first_line(error)})"
        )
        unknown = CannotCapture(Reason.ARGUMENT, problem, fix="pass it on the GPU")
        return functions.refusal or operators.refusal or unknown
    return functions.refusal or operators.refusal


class _FunctionReads(_Pausing, TorchFunctionMode):  # type: ignore[misc]
    """Remembers the first call that reads an argument on the CPU without an operator, such as `tolist`."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__()
        self._paths = paths
        self.refusal: CannotCapture | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOST_READS and not (self.is_paused or self.refusal) and args[0].device.type == "cpu":
            path = self._paths.get(storage_id(args[0]))
            self.refusal = _refuse_host_read(path, f"Tensor.{func.__name__}") if path else None
        return func(*args, **(kwargs or {}))


class _OperatorReads(_Pausing, OperatorMode):
    """Remembers the first operator that uses an argument on the CPU for something else than a copy to or from the device."""

    def __init__(self, paths: Mapping[int, str], device: Any) -> None:
        super().__init__()
        self._paths, self._device = paths, device
        self.refusal: CannotCapture | None = None

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and check what it reads."""
        out = func(*args, **kwargs)
        if not (self.is_paused or self.refusal or returns_view(func) or only_allocates(func)):
            self._check(func, args, kwargs, out)
        return out

    def _check(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = func.name().partition(".")[0]
        tensors = [value for value in leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        if name.endswith("_like"):
            return
        if name in ("aten::_to_copy", "aten::copy_") and self._device.type in {t.device.type for t in (*tensors, out)}:
            return
        read = (self._paths.get(storage_id(tensor)) for tensor in tensors if tensor.device.type == "cpu")
        path = next(filter(None, read), "")
        if path:
            self.refusal = _refuse_host_read(path, name)


def _refuse_host_read(path: str, operation: str) -> CannotCapture:
    from rocsolid.runtime.capture.diagnosis import current_module, refuse_operation
    from rocsolid.torchapi.user_frames import user_code_line

    why = f"reads `{path}` on the CPU, and every replay would use the values that it had during the capture"
    fix = f"pass the numbers themselves (`{path}.tolist()`), or {path}.cuda()"
    return refuse_operation(Reason.ARGUMENT, operation, why, fix, user_code_line(), module=current_module())
