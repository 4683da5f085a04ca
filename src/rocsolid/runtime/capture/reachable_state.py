"""What a function can reach besides its arguments (modules, tensors, numbers, lists), and snapshots of it.

A graph contains the addresses and values of this state at the time of the capture. So we collect it to restore it after the
warm-up runs, to detect Python side effects that no replay repeats, and to detect at each replay what was replaced since the
capture (`invalidation.py`).
"""

import functools
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch

from rocsolid.torchapi.graphs.tensor_checks import write_count
from rocsolid.torchapi.pytree import constant_key

_MAX_VALUES: Final = 50_000  # values to visit; what a function reaches beyond these is not watched
_MAX_WATCHED_CONSTANTS: Final = 64  # constants in a larger list or dictionary are not watched
_MAX_SAVED_BYTES: Final = 256 * 2**20  # buffers up to this total are saved even if no write to them was seen
_WRAPPED_FUNCTION_ATTRIBUTES: Final = ("__wrapped__", "_torchdynamo_orig_callable", "__rocsolid_function__")
_SKIPPED_MODULES: Final = ("torch.", "numpy.", "builtins", "logging", "threading", "collections", "_thread", "_io")


class Reference(NamedTuple):
    """One place that holds a value: an entry of a dictionary or list, or a closure cell."""

    path: str
    holder: Any
    key: Any  # None for a closure cell
    value: Any

    def current(self) -> Any:
        """Return the present value; raises LookupError when there is none."""
        if self.key is None:
            try:
                return self.holder.cell_contents
            except ValueError as empty:
                raise LookupError(self.path) from empty
        return self.holder[self.key]

    def restore(self) -> None:
        """Put the original value back."""
        if self.key is None:
            self.holder.cell_contents = self.value
        else:
            self.holder[self.key] = self.value


class _GradHolder:
    """Gives `tensor.grad` the interface of a dictionary entry, so that a Reference can hold it."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getitem__(self, _: str) -> Any:
        return self._tensor.grad

    def __setitem__(self, _: str, value: Any) -> None:
        self._tensor.grad = value


@dataclass(kw_only=True)
class ReachableState:
    """Everything a function can reach."""

    tensors: list[Reference] = field(default_factory=list)
    modules: list[Reference] = field(default_factory=list)
    constants: list[Reference] = field(default_factory=list)
    named_modules: list[tuple[str, Any]] = field(default_factory=list)  # by path, the function itself included
    containers: list[tuple[str, Any]] = field(default_factory=list)  # lists and dictionaries, whose length may change
    generators: list[Any] = field(default_factory=list)

    def fingerprint(self) -> dict[str, Hashable]:
        """Return what a call must not change, because a replay does not repeat it: constants, bindings, lengths of containers."""
        values: dict[str, Hashable] = {}
        for reference in (*self.constants, *self.tensors, *self.modules):
            try:
                value = reference.current()
            except LookupError:
                values[reference.path] = "deleted"
                continue
            key = constant_key(value)
            values[reference.path] = id(value) if key is None else key
        values.update({f"len({path})": len(container) for path, container in self.containers})
        return values

    def without_gradients(self) -> "ReachableState":
        """Return the state without gradients, which a training step sets and the caller clears between the calls."""
        return replace(self, tensors=[ref for ref in self.tensors if not isinstance(ref.holder, _GradHolder)])

    def copy_containers(self) -> list[tuple[Any, Any]]:
        """Return the lists and dictionaries, each with a shallow copy."""
        return [(container, container.copy()) for _, container in self.containers]


def _restore_containers(copies: list[tuple[Any, Any]]) -> None:
    for container, copy in copies:
        if isinstance(container, MutableMapping):
            if len(container) != len(copy) or any(container.get(k) is not v for k, v in copy.items()):
                container.clear()
                container.update(copy)
        elif len(container) != len(copy) or any(a is not b for a, b in zip(container, copy, strict=True)):
            container.clear()
            container.extend(copy)


def collect_reachable(function: Callable[..., Any]) -> ReachableState:
    """Return everything that the function can reach now."""
    return _Collector().run(function)


class _Collector:
    """A breadth-first walk over closures, globals, attributes and containers."""

    def __init__(self) -> None:
        self._state = ReachableState()
        self._seen: set[int] = set()
        self._next: deque[tuple[str, Any]] = deque()

    def run(self, function: Callable[..., Any]) -> ReachableState:
        self._next.append(("", function))
        while self._next and len(self._seen) < _MAX_VALUES:
            path, value = self._next.popleft()
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._visit(path, value)
        return self._state

    def _visit(self, path: str, value: Any) -> None:
        if isinstance(value, torch.nn.Module):
            self._visit_module(path, value)
        elif isinstance(value, types.FunctionType):
            self._visit_function(path, value)
        elif isinstance(value, types.MethodType):
            self._next.extend([(path, value.__self__), (path, value.__func__)])
        elif isinstance(value, functools.partial):
            parts = [value.func, *value.args, *value.keywords.values()]
            self._next.extend((f"{path}<partial {index}>", part) for index, part in enumerate(parts))
        elif isinstance(value, (list, tuple, dict, deque)):
            self._visit_container(path, value)
        elif isinstance(value, torch.Generator):
            self._state.generators.append(value)
        elif isinstance(value, torch.optim.Optimizer) or _is_user_object(value):
            self._visit_attributes(path, vars(value))

    def _add(self, reference: Reference) -> None:
        """Sort a reference by the type of its value, and continue with that value."""
        value = reference.value
        if _is_rocsolid_object(value):  # another captured function: continue with what it wraps
            self._next.extend(
                (reference.path, vars(value)[name]) for name in _WRAPPED_FUNCTION_ATTRIBUTES if name in vars(value)
            )
            return
        if isinstance(value, torch.Tensor):
            self._state.tensors.append(reference)
            if value.grad is not None:
                self._state.tensors.append(Reference(f"{reference.path}.grad", _GradHolder(value), "grad", value.grad))
            return
        if isinstance(value, torch.nn.Module):
            self._state.modules.append(reference)
        elif constant_key(value) is not None:
            self._state.constants.append(reference)
            return
        self._next.append((reference.path, value))

    def _visit_module(self, path: str, module: Any) -> None:
        self._state.named_modules.append((path, module))
        attributes = vars(module)
        for kind in ("_parameters", "_buffers", "_modules"):
            for name, value in attributes[kind].items():
                self._add(Reference(_joined(path, name), attributes[kind], name, value))
        for wrapped in _WRAPPED_FUNCTION_ATTRIBUTES:
            if wrapped in attributes:
                self._next.append((path, attributes[wrapped]))
        if type(module).__module__.startswith("torch."):
            return
        for name, value in attributes.items():
            if name not in _attributes_of_every_module():
                self._add(Reference(_joined(path, name), attributes, name, value))

    def _visit_function(self, path: str, function: Any) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                self._add(Reference(_joined(path, name), cell, None, cell.cell_contents))
            except ValueError:  # not bound yet
                continue
        if not _is_library(function.__module__ or ""):
            for name in _global_names(function.__code__):
                value = function.__globals__.get(name, types)
                if not isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
                    self._add(Reference(_joined(path, name), function.__globals__, name, value))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._next.extend((f"{path}<default>", value) for value in defaults if not _is_rocsolid_object(value))
        self._next.extend(
            (path, vars(function)[name]) for name in _WRAPPED_FUNCTION_ATTRIBUTES if name in vars(function)
        )

    def _visit_container(self, path: str, container: Any) -> None:
        items: Iterable[tuple[Any, Any]] = container.items() if isinstance(container, dict) else enumerate(container)
        if not isinstance(container, tuple):
            self._state.containers.append((path, container))
        large = len(container) > _MAX_WATCHED_CONSTANTS
        for key, value in items:
            if large and constant_key(value) is not None:
                continue  # a table of words or numbers: checking each of them would cost more than the call
            self._add(Reference(f"{path}[{key!r}]", container, key, value))

    def _visit_attributes(self, path: str, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            self._add(Reference(_joined(path, name), attributes, name, value))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _is_user_object(value: Any) -> bool:
    """Return whether an object is an instance of a class that is not torch's or the standard library's."""
    kind = type(value)
    return hasattr(value, "__dict__") and not isinstance(value, type) and not _is_library(kind.__module__)


def _is_rocsolid_object(value: Any) -> bool:
    """Return whether an object is rocsolid's own, such as the log of a function's compiles, which changes with every compile."""
    return type(value).__module__.startswith("rocsolid.")


def _is_library(module: str) -> bool:
    return module in ("torch", "numpy") or module.startswith(_SKIPPED_MODULES)


@functools.cache
def _attributes_of_every_module() -> frozenset[str]:
    return frozenset(vars(torch.nn.Module()))


class WriteDetector:
    """Detects which of some tensors are written to in place. A tensor made in inference mode always counts as written."""

    def __init__(self, tensors: Iterable[tuple[str, Any]]) -> None:
        self._before = [(path, tensor, write_count(tensor)) for path, tensor in tensors]

    def written(self) -> list[tuple[str, Any]]:
        """Return the tensors that were written to since this object was made."""
        return [
            (path, tensor) for path, tensor, before in self._before if before is None or write_count(tensor) != before
        ]


class TensorSnapshot:
    """Copies of some tensors' values, to be restored later."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        unique = {id(tensor): tensor for tensor in tensors}
        with torch.no_grad():
            self._saved = [(tensor, tensor.detach().clone()) for tensor in unique.values()]

    def restore(self) -> None:
        """Restore the values, without raising the version counters that autograd checks."""
        for tensor, saved in self._saved:
            tensor.data.copy_(saved)


def tensors_to_save(state: ReachableState, written: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return the tensors that a run may change: `written`, and all that are not parameters if they are small together.

    Kernels from outside torch do not raise version counters, so not every write is detected.
    """
    saved = [tensor for _, tensor in written]
    others = [ref.value for ref in state.tensors if not isinstance(ref.value, torch.nn.Parameter)]
    if sum(tensor.numel() * tensor.element_size() for tensor in others) <= _MAX_SAVED_BYTES:
        saved += others
    return saved


class RngSnapshot:
    """The state of every random number generator that a run may draw from."""

    def __init__(self, device: Any, generators: Sequence[Any]) -> None:
        defaults = [torch.default_generator]
        if device.type == "cuda":
            defaults.append(torch.cuda.default_generators[device.index or 0])
        self._generators = list({id(g): g for g in (*defaults, *generators)}.values())
        self._saved = [generator.get_state() for generator in self._generators]

    def restore(self) -> None:
        """Restore the state of every generator."""
        for generator, saved in zip(self._generators, self._saved, strict=True):
            generator.set_state(saved)

    def advanced(self) -> bool:
        """Return whether any generator was drawn from since the snapshot."""
        return any(
            not torch.equal(generator.get_state(), saved)
            for generator, saved in zip(self._generators, self._saved, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """The state from which every warm-up, capture and verification run starts: tensors, random numbers, written arguments."""

    tensors: TensorSnapshot
    rng: RngSnapshot
    inputs: TensorSnapshot

    def restore(self) -> None:
        """Restore all of it."""
        self.tensors.restore()
        self.rng.restore()
        self.inputs.restore()


@contextmanager
def restoring(state: ReachableState, initial: InitialState) -> Iterator[None]:
    """Restore tensors, random numbers and Python values at the end of the block, whatever runs inside."""
    bindings = [_with_current_value(ref) for ref in (*state.constants, *state.tensors, *state.modules)]
    copies = state.copy_containers()
    try:
        yield
    finally:
        initial.restore()
        for binding in bindings:
            if binding is not None and _was_rebound(binding):
                binding.restore()
        _restore_containers(copies)


def _with_current_value(reference: Reference) -> Reference | None:
    try:
        return reference._replace(value=reference.current())
    except LookupError:
        return None


def _was_rebound(reference: Reference) -> bool:
    try:
        return reference.current() is not reference.value
    except LookupError:
        return True


@contextmanager
def fresh_autocast_cache() -> Iterator[None]:
    """Autocast casts every weight again inside the block, and none of these casts is used after it.

    Autocast caches cast weights until its outermost block ends. A graph must not read a cast from before the capture, which would
    be freed or become stale. Code outside the graph must not read a cast that only a replay updates.
    """
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()
