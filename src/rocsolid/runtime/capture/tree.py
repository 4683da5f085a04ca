"""Arguments and results as trees: taken apart into tensors and constants, and put together again.

This is the slow and general way. A call that is replayed goes through code made for its own structure (`reading.py`).
"""

import copy
import dataclasses
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from rocsolid.torchapi.pytree import registered

_PLAIN: Final = (type(None), bool, int, str, bytes, type(...))
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial, type)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One container, opened."""

    values: tuple[Any, ...]
    steps: tuple[str, ...]  # how each value is reached, as one writes it: [0], ['ids'], .scale
    form: Hashable  # what besides the type must be the same: length, keys, context
    rebuild: Callable[[Sequence[Any]], Any]
    by_flattening: bool = False  # the values are reached by a registered function alone


def opened(value: Any) -> Opened | None:
    """A container, opened; None for what is not one, or not one that can be put together again."""
    kind = type(value)
    if kind is list or kind is tuple:
        return _sequence(value, kind)
    if kind is dict or kind is OrderedDict:
        return _mapping(value, lambda values: kind(zip(value, values, strict=True)))
    if isinstance(value, tuple) and hasattr(kind, "_make") and hasattr(kind, "_fields"):
        return _sequence(value, kind._make)
    if kind.__module__.startswith("torch.return_types"):
        return _sequence(value, kind)
    found = registered(kind)
    if found is not None:
        return _registered(value, found.flatten, found.unflatten)
    if isinstance(value, dict) and dataclasses.is_dataclass(value):  # a model hub's output that nobody registered
        return _mapping(value, lambda values: kind(**dict(zip(value, values, strict=True))))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value)
    return None


def _sequence(value: Any, make: Callable[[Any], Any]) -> Opened:
    steps = tuple(f"[{number}]" for number in range(len(value)))
    return Opened(values=tuple(value), steps=steps, form=len(value), rebuild=make)


def _mapping(value: Any, make: Callable[[Sequence[Any]], Any]) -> Opened:
    keys = tuple(value)
    return Opened(values=tuple(value.values()), steps=tuple(f"[{k!r}]" for k in keys), form=keys, rebuild=make)


def _registered(value: Any, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> Opened | None:
    values, context = flatten(value)
    try:
        hash(context)
        form: Hashable = context
    except TypeError:
        form = repr(context)
    steps = tuple(f"<{number}>" for number in range(len(values)))
    return Opened(
        values=tuple(values),
        steps=steps,
        form=(len(steps), form),
        rebuild=lambda new: unflatten(list(new), context),
        by_flattening=True,
    )


def _dataclass(value: Any) -> Opened:
    names = tuple(field.name for field in dataclasses.fields(value))

    def rebuild(values: Sequence[Any]) -> Any:
        made = copy.copy(value)
        for name, new in zip(names, values, strict=True):
            object.__setattr__(made, name, new)  # frozen ones too
        return made

    values = tuple(getattr(value, name) for name in names)
    return Opened(values=values, steps=tuple(f".{name}" for name in names), form=names, rebuild=rebuild)


@dataclass(frozen=True)
class Leaf:
    """A value that is not a container, and where it was found."""

    path: str
    value: Any


@dataclass(frozen=True)
class Tree:
    """A value taken apart."""

    leaves: tuple[Leaf, ...]
    form: Hashable
    rebuild: Callable[[Iterator[Any]], Any]

    def with_leaves(self, values: Sequence[Any]) -> Any:
        """The same structure around other values."""
        return self.rebuild(iter(values))

    @property
    def on_device(self) -> bool:
        """Whether a tensor of it is on a device that captures."""
        import torch

        return any(isinstance(leaf.value, torch.Tensor) and leaf.value.device.type == "cuda" for leaf in self.leaves)


def take_apart(value: Any, path: str) -> Tree:
    """The leaves of a value with their paths, its form, and how to put it together."""
    inner = opened(value)
    if inner is None:
        return Tree((Leaf(path, value),), "*", next)
    below = [take_apart(v, path + step) for v, step in zip(inner.values, inner.steps, strict=True)]
    return Tree(
        leaves=tuple(leaf for tree in below for leaf in tree.leaves),
        form=(type(value), inner.form, tuple(tree.form for tree in below)),
        rebuild=lambda values: inner.rebuild([tree.rebuild(values) for tree in below]),
    )


def token(value: Any) -> Hashable | None:
    """What a constant is known by: its type and its value, so that True, 1 and 1.0 are three; None for what is no constant."""
    import torch

    kind = type(value)
    if kind in _PLAIN or isinstance(
        value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range, Enum)
    ):
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is slice:
        return _tokens(kind, (value.start, value.stop, value.step))
    if kind in (set, frozenset):
        within = [token(v) for v in value]
        return None if None in within else (kind, frozenset(within))
    return None


def _tokens(kind: type, values: tuple[Any, ...]) -> Hashable | None:
    within = tuple(token(v) for v in values)
    return None if None in within else (kind, within)


def known_by_identity(value: Any) -> bool:
    """Whether a value is itself and no other: a module, a function, a generator of random numbers."""
    import torch

    return isinstance(value, (torch.nn.Module, torch.Generator, *_FUNCTIONS))
