"""Nested arguments and results: flattened into leaves with their paths, and built again.

`torch.utils._pytree` does this for registered containers. Here every leaf also has the path that a user would write
(`batch['ids'][0]`), dataclasses need not be registered, and a container that cannot be rebuilt is one leaf.
"""

import copy
import dataclasses
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, Final, NamedTuple

from rocsolid.torchapi.private_api import private_name

_LEAVES = private_name(
    "torch.utils._pytree",
    "tree_leaves",
    "2.2..",
    without="rocsolid compiles: containers of registered types are one value",
)
_NODES = private_name(
    "torch.utils._pytree",
    "SUPPORTED_NODES",
    "2.2..",
    without="rs.capture: results of registered container types are not taken apart",
)
_CONSTANT_TYPES: Final = (type(None), bool, int, str, bytes, type(...))
_DEFINED_IN_PYTHON: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_CACHES: Final = "transformers.cache_utils"
_cache_kinds: Final[weakref.WeakKeyDictionary[type, bool]] = weakref.WeakKeyDictionary()
_PART_CONTAINERS: Final = (list, dict, OrderedDict)
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial, type)


class Registered(NamedTuple):
    """The flatten and unflatten functions of a registered container type."""

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Sequence[Any], Any], Any]


def registered(kind: type) -> Registered | None:
    """Return the functions registered with torch for exactly this type, such as a model output of transformers."""
    node = _nodes().get(kind)
    return Registered(node.flatten_fn, node.unflatten_fn) if node is not None else None


@cache
def _nodes() -> dict[type, Any]:
    return _NODES.find() or {}


def leaves(value: Any) -> list[Any]:
    """Return every leaf by torch's own rules, without paths."""
    tree_leaves = _LEAVES.find()
    return list(tree_leaves(value)) if tree_leaves else [leaf.value for leaf in flatten(value, "").leaves]


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """One level of a container: its values, how each is reached, and how to build it again."""

    values: tuple[Any, ...]
    steps: tuple[str, ...]  # the code that reads each value: [0], ['ids'], .scale
    structure: Hashable  # what must be equal besides the type: length, keys, context
    rebuild: Callable[[Sequence[Any]], Any]
    by_flattening: bool = False  # the values can only be read with the registered flatten function


def open_container(value: Any) -> ContainerSpec | None:
    """Return the spec of a container that can be rebuilt; None for everything else."""
    kind = type(value)
    if kind in _CONSTANT_TYPES or kind is float:
        return None
    if kind is list or kind is tuple:
        return _sequence(value, kind)
    if kind is dict or kind is OrderedDict:
        return _mapping(value, kind)
    if (
        isinstance(value, tuple)
        and hasattr(kind, "_make")
        and hasattr(kind, "_fields")
        and not hasattr(value, "__dict__")
    ):
        return _sequence(value, kind._make)
    if kind.__module__.startswith("torch.return_types"):
        return _sequence(value, kind)
    found = registered(kind)
    if found is not None:
        return _registered(value, found.flatten, found.unflatten)
    if isinstance(value, dict) and dataclasses.is_dataclass(value):  # a model output that was not registered
        return _mapping(value, lambda items: kind(**dict(items)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value)
    return None


def _sequence(value: Any, make: Callable[[Any], Any]) -> ContainerSpec:
    steps = tuple(f"[{number}]" for number in range(len(value)))
    return ContainerSpec(values=tuple(value), steps=steps, structure=len(value), rebuild=make)


def _mapping(value: Any, make: Callable[[Iterator[tuple[Any, Any]]], Any]) -> ContainerSpec:
    keys = tuple(value)  # those of now: the dictionary may be changed later

    def rebuild(values: Sequence[Any]) -> Any:
        return make(zip(keys, values, strict=True))

    return ContainerSpec(
        values=tuple(value.values()), steps=tuple(f"[{k!r}]" for k in keys), structure=keys, rebuild=rebuild
    )


def _registered(
    value: Any, flatten_fn: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]
) -> ContainerSpec | None:
    values, context = flatten_fn(value)
    try:
        hash(context)
        structure: Hashable = context
    except TypeError:
        structure = repr(context)
    steps = tuple(f"<{number}>" for number in range(len(values)))
    return ContainerSpec(
        values=tuple(values),
        steps=steps,
        structure=(len(steps), structure),
        rebuild=lambda new: unflatten(list(new), context),
        by_flattening=True,
    )


def _dataclass(value: Any) -> ContainerSpec:
    fields = (field.name for field in dataclasses.fields(value))
    # Also attributes that are not fields; without fields that have no value yet.
    names = tuple(name for name in dict.fromkeys((*fields, *getattr(value, "__dict__", ()))) if hasattr(value, name))

    def rebuild(values: Sequence[Any]) -> Any:
        rebuilt = copy.copy(value)
        for name, new in zip(names, values, strict=True):
            object.__setattr__(rebuilt, name, new)  # works for frozen dataclasses too
        return rebuilt

    values = tuple(getattr(value, name) for name in names)
    return ContainerSpec(values=values, steps=tuple(f".{name}" for name in names), structure=names, rebuild=rebuild)


@dataclass(frozen=True)
class Leaf:
    """A value that is not a container, and its path."""

    path: str
    value: Any


@dataclass(frozen=True)
class Flattened:
    """A flattened value: its leaves, its structure, and how to build it again."""

    leaves: tuple[Leaf, ...]
    structure: Hashable
    rebuild: Callable[[Iterator[Any]], Any]

    def unflatten(self, values: Sequence[Any]) -> Any:
        """Build the same structure with other leaves."""
        return self.rebuild(iter(values))

    @property
    def on_device(self) -> bool:
        """Whether a leaf is a tensor on a GPU."""
        import torch

        return any(isinstance(leaf.value, torch.Tensor) and leaf.value.device.type == "cuda" for leaf in self.leaves)


def flatten(value: Any, path: str, open_value: Callable[[Any], ContainerSpec | None] = open_container) -> Flattened:
    """Flatten a nested value; paths begin with `path`."""
    spec = open_value(value)
    if spec is None:
        return Flattened((Leaf(path, value),), "*", next)
    children = [flatten(v, path + step, open_value) for v, step in zip(spec.values, spec.steps, strict=True)]
    return Flattened(
        leaves=tuple(leaf for child in children for leaf in child.leaves),
        structure=(type(value), spec.structure, tuple(child.structure for child in children)),
        rebuild=lambda values: spec.rebuild([child.rebuild(values) for child in children]),
    )


class Part:
    """Stands for an object of the caller in a flattened result: one that a cache among the arguments consists of.

    Not a dataclass, which would be taken apart.
    """

    __slots__ = ("kind", "number")

    def __init__(self, number: int, kind: type) -> None:
        self.number = number
        self.kind = kind

    def new(self) -> Any:
        """Return an empty object of this kind."""
        return self.kind() if self.kind in _PART_CONTAINERS else object.__new__(self.kind)


@dataclass(frozen=True, kw_only=True, eq=False)
class CallResult:
    """The result of a call that may change caches among its arguments, and the parts of the caches after the call.

    Flattened, it also has what the changed parts contain, and the parts are the caller's objects. Building it fills these.
    """

    value: Any
    parts: Sequence[Leaf]  # as `parts_of` yielded them before the call
    changed: Sequence[int]  # numbers of the parts that contain other objects or numbers than before

    def with_parts(self, parts: Mapping[int, Any]) -> "CallResult":
        """Return the result with these parts, by number."""
        leaves = [Leaf(leaf.path, parts.get(number)) for number, leaf in enumerate(self.parts)]
        return dataclasses.replace(self, parts=leaves)


def run_with_parts(parts: Sequence[Leaf], run: Callable[[], Any]) -> CallResult:
    """Run a call that may change these parts of caches."""
    before = [_contents(leaf.value) for leaf in parts]
    value = run()
    after = (_contents(leaf.value) for leaf in parts)
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if not _same(old, new)]
    return CallResult(value=value, parts=parts, changed=changed)


def _contents(part: Any) -> tuple[Any, Sequence[Any]]:
    """Return how the values in a part are reached, and the values."""
    return (len(part), list(part)) if isinstance(part, list) else (tuple(_held(part)), list(_held(part).values()))


def _same(before: tuple[Any, Sequence[Any]], now: tuple[Any, Sequence[Any]]) -> bool:
    return before[0] == now[0] and all(
        new is old or ((key := constant_key(new)) is not None and key == constant_key(old))
        for old, new in zip(before[1], now[1], strict=True)
    )


class PartContents:
    """What some parts of caches contain now, to be restored."""

    def __init__(self, parts: Sequence[Leaf]) -> None:
        self._contents = [(part.value, *_contents(part.value)) for part in parts]

    def tensors(self) -> Iterator[Any]:
        """Yield the tensors in the parts."""
        import torch

        values = (value for _, _, held in self._contents for value in held)
        return (value for value in values if isinstance(value, torch.Tensor))

    def restore(self) -> None:
        """Make the parts contain it again."""
        for part, names, values in self._contents:
            _fill(part, names, values)


def flatten_result(value: Any, path: str = "result", *, open_caches: bool = True) -> Flattened:
    """Flatten the result of a function. Plain objects, such as the KV cache of a model output, are taken apart, too.

    An object that occurs twice is a leaf the second time: two objects would be built from it.
    """
    opened: set[int] = set()
    parts = value.parts if type(value) is CallResult else ()
    numbers = {id(part.value): number for number, part in enumerate(parts) if part.value is not None}

    def open_value(value: Any) -> ContainerSpec | None:
        number = numbers.get(id(value))
        if number is not None:
            part = Part(number, type(value))
            return ContainerSpec(values=(part,), steps=("",), structure="part", rebuild=lambda values: values[0])
        spec = open_container(value)
        closed = id(value) in opened or (is_cache(value) and not open_caches)
        if spec is None and is_plain_object(value) and not closed:
            opened.add(id(value))
            spec = _object(value)
        return spec

    if type(value) is not CallResult:
        return flatten(value, path, open_value)
    flat = [flatten(value.value, path, open_value)]
    flat += [_flatten_part(value.parts[number], number, open_value) for number in value.changed]

    changed, unknown = value.changed, [Leaf(part.path, None) for part in value.parts]

    def rebuild(values: Iterator[Any]) -> CallResult:
        result = flat[0].rebuild(values)
        for part in flat[1:]:
            part.rebuild(values)
        return CallResult(value=result, parts=unknown, changed=changed)

    return Flattened(
        leaves=tuple(leaf for each in flat for leaf in each.leaves),
        structure=(CallResult, len(flat[0].leaves), tuple(each.structure for each in flat)),
        rebuild=rebuild,
    )


def _flatten_part(part: Leaf, number: int, open_value: Callable[[Any], ContainerSpec | None]) -> Flattened:
    """Flatten one of the caller's objects: the object itself, and what it contains now."""
    names, values = _contents(part.value)
    steps = range(names) if isinstance(names, int) else names
    form = f"{part.path}.{{}}" if is_cache(part.value) else f"{part.path}[{{!r}}]"
    children = [flatten(value, form.format(step), open_value) for step, value in zip(steps, values, strict=True)]

    def rebuild(values: Iterator[Any]) -> Any:
        target = next(values)
        return _fill(target, names, [child.rebuild(values) for child in children])

    return Flattened(
        leaves=(
            Leaf(part.path, Part(number, type(part.value))),
            *(leaf for child in children for leaf in child.leaves),
        ),
        structure=("part", names, tuple(child.structure for child in children)),
        rebuild=rebuild,
    )


def _fill(target: Any, names: Any, items: Sequence[Any]) -> Any:
    """Make one of the caller's objects contain these values."""
    if isinstance(target, list):
        target[:] = items
        return target
    held = _held(target)
    if tuple(held) != names:
        held.clear()
    for name, item in zip(names, items, strict=True):
        if held.get(name, held) is not item:
            held[name] = item
    return target


def is_cache(value: Any) -> bool:
    """Return whether this is a KV cache of transformers, or a layer of one: an object whose attributes a model changes in each call."""
    kind = type(value)
    known = _cache_kinds.get(kind)
    if known is None:
        known = any(base.__module__ == _CACHES for base in kind.__mro__) and is_plain_object(value)
        _cache_kinds[kind] = known
    return known


def is_part(value: Any) -> bool:
    """Return whether a call may change this object in a cache, or the cache itself, in Python."""
    return type(value) in _PART_CONTAINERS or is_cache(value)


def open_argument(value: Any) -> ContainerSpec | None:
    """Return the spec of a container among the arguments of a call, or of a cache."""
    return _object(value) if is_cache(value) else open_container(value)


def open_outside_caches(value: Any) -> ContainerSpec | None:
    """Return the spec of a container; None for a cache, and for everything else."""
    return None if is_cache(value) else open_container(value)


def flatten_argument(value: Any, path: str) -> Flattened:
    """Flatten an argument; caches are taken apart, too. A part of a cache that occurs twice is a leaf the second time."""
    opened: set[int] = set()

    def open_value(value: Any) -> ContainerSpec | None:
        if is_cache(value):
            if id(value) in opened:
                return None
            opened.add(id(value))
        return open_argument(value)

    return flatten(value, path, open_value)


def caches_in(value: Any, path: str) -> Iterator[Leaf]:
    """Yield the caches in an argument with their paths, but not those inside another one."""
    if is_cache(value):
        yield Leaf(path, value)
    elif (spec := open_outside_caches(value)) is not None:
        for child, step in zip(spec.values, spec.steps, strict=True):
            yield from caches_in(child, path + step)


def holds_tensors(cache: Any) -> bool:
    """Return whether a cache was used before: whether it has keys or values."""
    import torch

    values = (value for part in parts_of(Leaf("", cache)) for value in _contents(part.value)[1])
    return any(isinstance(value, torch.Tensor) and value.dim() and value.numel() for value in values)


def _held(part: Any) -> dict[Any, Any]:
    return part if isinstance(part, dict) else vars(part)


def parts_of(cache: Leaf) -> Iterator[Leaf]:
    """Yield a cache and the objects, lists and dictionaries in it, which a call may change in Python."""
    if is_part(cache.value):
        yield cache
    spec = open_argument(cache.value)
    if spec is not None:
        for child, step in zip(spec.values, spec.steps, strict=True):
            yield from parts_of(Leaf(cache.path + step, child))


def is_plain_object(value: Any) -> bool:
    """Return whether an object consists of nothing but its attributes, and its class does not decide how it is copied."""
    kind = type(value)
    return (
        isinstance(getattr(value, "__dict__", None), dict)
        and not callable(value)
        and not isinstance(value, (BaseException, type))
        and all(c is object or (c.__flags__ & _DEFINED_IN_PYTHON and not _slots(c)) for c in kind.__mro__)
        and all(getattr(kind, name) is getattr(object, name) for name in ("__new__", "__reduce__", "__reduce_ex__"))
        and not any(hasattr(kind, name) for name in ("__setstate__", "__copy__", "__del__", "__next__", "__enter__"))
    )


def _slots(kind: type) -> set[str]:
    slots = vars(kind).get("__slots__", ())
    return set([slots] if isinstance(slots, str) else slots) - {"__dict__", "__weakref__"}


def _object(value: Any) -> ContainerSpec:
    kind, names = type(value), tuple(vars(value))

    def rebuild(values: Sequence[Any]) -> Any:
        rebuilt = object.__new__(kind)
        vars(rebuilt).update(zip(names, values, strict=True))
        return rebuilt

    steps = tuple(f".{name}" for name in names)
    return ContainerSpec(values=tuple(vars(value).values()), steps=steps, structure=names, rebuild=rebuild)


def constant_key(value: Any) -> Hashable | None:
    """Return a hashable key with the type and value of a constant, so that True, 1 and 1.0 differ; None for anything else."""
    import torch

    kind = type(value)
    if kind in _CONSTANT_TYPES or isinstance(
        value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range, Enum)
    ):
        return kind, value
    if kind is Part:
        return kind, value.number
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is slice:
        return _constant_keys(kind, (value.start, value.stop, value.step))
    if kind in (set, frozenset):
        keys = [constant_key(v) for v in value]
        return None if None in keys else (kind, frozenset(keys))
    return None


def _constant_keys(kind: type, values: tuple[Any, ...]) -> Hashable | None:
    keys = tuple(constant_key(v) for v in values)
    return None if None in keys else (kind, keys)


def compared_by_identity(value: Any) -> bool:
    """Return whether a value equals only itself: a module, a function, a random number generator."""
    import torch

    return isinstance(value, (torch.nn.Module, torch.Generator, *_FUNCTIONS))
