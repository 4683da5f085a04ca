"""What a function can reach besides its arguments: modules, tensors, numbers, lists; in closures, attributes and globals.

A graph holds the addresses and the values of all of them as they were when it was captured. So they are looked up once, to
keep warm-up runs from disturbing them, to notice what the function changes in Python (which no replay repeats), and to
notice before each replay what has been replaced since.
"""

import functools
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from rocsolid.torchapi.pytree import constant_key

_MOST: Final = 50_000  # values looked at; a function that reaches more is not watched beyond
_LARGE: Final = 64
_WRAPPED: Final = ("__wrapped__", "_torchdynamo_orig_callable", "__rocsolid_function__")
_NOT_INTO: Final = ("torch.", "numpy.", "builtins", "logging", "threading", "collections", "_thread", "_io")


class Slot(NamedTuple):
    """A place where a value is held."""

    path: str
    holder: Any  # a dictionary, a list, or a closure's cell
    key: Any  # None for a cell
    value: Any

    def now(self) -> Any:
        """What is held there now; raises LookupError when nothing is."""
        if self.key is None:
            try:
                return self.holder.cell_contents
            except ValueError as empty:
                raise LookupError(self.path) from empty
        return self.holder[self.key]

    def put_back(self) -> None:
        """Hold the value again that was held."""
        if self.key is None:
            self.holder.cell_contents = self.value
        else:
            self.holder[self.key] = self.value


class _Gradient:
    """A tensor's gradient as something to look up, so that it is watched like everything else."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getitem__(self, _: str) -> Any:
        return self._tensor.grad

    def __setitem__(self, _: str, value: Any) -> None:
        self._tensor.grad = value


@dataclass(kw_only=True)
class Sight:
    """Everything a function was seen to reach."""

    tensors: list[Slot] = field(default_factory=list)
    modules: list[Slot] = field(default_factory=list)  # module, or nothing where there may be one
    constants: list[Slot] = field(default_factory=list)
    training: list[tuple[str, Any]] = field(default_factory=list)  # modules by path, the function's own included
    containers: list[tuple[str, Any]] = field(default_factory=list)  # lists and dictionaries, whose length may change
    generators: list[Any] = field(default_factory=list)

    def fingerprint(self) -> dict[str, Hashable]:
        """What a call may not change, because no replay would: numbers, what names are bound to, how long lists are."""
        prints: dict[str, Hashable] = {}
        for slot in (*self.constants, *self.tensors, *self.modules):
            try:
                value = slot.now()
            except LookupError:
                prints[slot.path] = "gone"
                continue
            known = constant_key(value)
            prints[slot.path] = id(value) if known is None else known
        prints.update({f"the length of {path}": len(held) for path, held in self.containers})
        return prints

    def without_gradients(self) -> "Sight":
        """For a call whose backward is captured too: gradients are its results, and come and go between the calls."""
        return replace(self, tensors=[slot for slot in self.tensors if not isinstance(slot.holder, _Gradient)])

    def shallow_copies(self) -> list[tuple[Any, Any]]:
        """The lists and dictionaries with copies of what they hold now."""
        return [(held, held.copy()) for _, held in self.containers]


def put_back(copies: list[tuple[Any, Any]]) -> None:
    """Let lists and dictionaries hold again what they held when they were copied."""
    for held, copy in copies:
        if isinstance(held, MutableMapping):
            if len(held) != len(copy) or any(held.get(k) is not v for k, v in copy.items()):
                held.clear()
                held.update(copy)
        elif len(held) != len(copy) or any(a is not b for a, b in zip(held, copy, strict=True)):
            held.clear()
            held.extend(copy)


def look_around(function: Callable[..., Any]) -> Sight:
    """Everything the function can reach now."""
    return _Walk().run(function)


class _Walk:
    def __init__(self) -> None:
        self._sight = Sight()
        self._seen: set[int] = set()
        self._next: deque[tuple[str, Any]] = deque()

    def run(self, function: Callable[..., Any]) -> Sight:
        self._next.append(("", function))
        while self._next and len(self._seen) < _MOST:
            path, value = self._next.popleft()
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._enter(path, value)
        return self._sight

    def _enter(self, path: str, value: Any) -> None:
        import torch

        if isinstance(value, torch.nn.Module):
            self._module(path, value)
        elif isinstance(value, types.FunctionType):
            self._function(path, value)
        elif isinstance(value, types.MethodType):
            self._next.extend([(path, value.__self__), (path, value.__func__)])
        elif isinstance(value, functools.partial):
            held = [value.func, *value.args, *value.keywords.values()]
            self._next.extend((f"{path}<partial {n}>", v) for n, v in enumerate(held))
        elif isinstance(value, (list, tuple, dict, deque)):
            self._container(path, value)
        elif isinstance(value, torch.Generator):
            self._sight.generators.append(value)
        elif isinstance(value, torch.optim.Optimizer) or _is_users(value):
            self._fields(path, vars(value))

    def _hold(self, slot: Slot) -> None:
        """Sort a place by what is in it, and go on into that."""
        import torch

        value = slot.value
        if _is_ours(value):  # another captured function: what it wraps is reached through it
            self._next.extend((slot.path, vars(value)[name]) for name in _WRAPPED if name in vars(value))
            return
        if isinstance(value, torch.Tensor):
            self._sight.tensors.append(slot)
            if value.grad is not None:
                self._sight.tensors.append(Slot(f"{slot.path}.grad", _Gradient(value), "grad", value.grad))
            return
        if isinstance(value, torch.nn.Module):
            self._sight.modules.append(slot)
        elif constant_key(value) is not None:
            self._sight.constants.append(slot)
            return
        self._next.append((slot.path, value))

    def _module(self, path: str, module: Any) -> None:
        self._sight.training.append((path, module))
        inner = vars(module)
        for kind in ("_parameters", "_buffers", "_modules"):
            for name, value in inner[kind].items():
                self._hold(Slot(_joined(path, name), inner[kind], name, value))
        for wrapped in _WRAPPED:
            if wrapped in inner:
                self._next.append((path, inner[wrapped]))
        if type(module).__module__.startswith("torch."):
            return
        for name, value in inner.items():
            if name not in _of_every_module():
                self._hold(Slot(_joined(path, name), inner, name, value))

    def _function(self, path: str, function: Any) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                self._hold(Slot(_joined(path, name), cell, None, cell.cell_contents))
            except ValueError:  # not bound yet
                continue
        if not _in_a_library(function.__module__ or ""):
            for name in _names_used(function.__code__):
                value = function.__globals__.get(name, types)
                if not isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
                    self._hold(Slot(_joined(path, name), function.__globals__, name, value))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._next.extend((f"{path}<default>", value) for value in defaults if not _is_ours(value))
        self._next.extend((path, vars(function)[name]) for name in _WRAPPED if name in vars(function))

    def _container(self, path: str, held: Any) -> None:
        pairs: Iterator[tuple[Any, Any]] = iter(held.items()) if isinstance(held, dict) else iter(enumerate(held))
        if not isinstance(held, tuple):
            self._sight.containers.append((path, held))
        large = len(held) > _LARGE
        for key, value in pairs:
            if large and constant_key(value) is not None:
                continue  # a table of words or numbers; watching each on every call would cost more than the call
            self._hold(Slot(f"{path}[{key!r}]", held, key, value))

    def _fields(self, path: str, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            self._hold(Slot(_joined(path, name), fields, name, value))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _names_used(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_used(constant)
    return names


def _is_users(value: Any) -> bool:
    """Whether to look into an object: an instance of a class that belongs to no library of the machinery."""
    kind = type(value)
    return hasattr(value, "__dict__") and not isinstance(value, type) and not _in_a_library(kind.__module__)


def _is_ours(value: Any) -> bool:
    """Whether it is something of rocsolid's own, such as the books of a compiled function, which change as it compiles."""
    return type(value).__module__.startswith("rocsolid.")


def _in_a_library(module: str) -> bool:
    return module in ("torch", "numpy") or module.startswith(_NOT_INTO)


@functools.cache
def _of_every_module() -> frozenset[str]:
    """What torch keeps in each module itself."""
    import torch

    return frozenset(vars(torch.nn.Module()))
