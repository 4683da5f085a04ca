"""Random programs for the capture tests: any kind of value, in any place that Python code can read it from.

A program is a host that calls one to four parts in a row. Each part reads one value (a `Kind`) out of one place (a
`Place`) and applies it to the input. Everything that a program can reach is built new, classes and modules included, so
that a program and its eager twin share nothing that changes.
"""

import array
import collections
import enum
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

NUMBERS = (2.0, -0.5, 3.0, 0.25)
WIDTH = 4


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """What a recipe builds with: the same tensors for the program and its twin, on the device of the test."""

    device: str = "cpu"
    seed: int = 0

    def tensor(self, n: int, *shape: int) -> Any:
        generator = torch.Generator().manual_seed(101 * self.seed + n)
        return torch.rand(*(shape or (WIDTH,)), generator=generator).add(0.5).to(self.device)

    def module(self, module: Any, n: int) -> Any:
        with torch.no_grad():
            for index, parameter in enumerate(module.parameters()):
                parameter.copy_(self.tensor(10 * n + index, *parameter.shape))
        return module.to(self.device)


Edit = Callable[[Toolbox, Any, int], object]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of value: how to make the n-th one, how a program uses it, and how it is changed in place."""

    make: Callable[[Toolbox, int], Any]
    apply: Callable[[Any, Any], Any]
    edits: Mapping[str, Edit] = field(default_factory=dict)
    rebinds: bool = True


def double(x: Any) -> Any:
    return x * 2


def negate(x: Any) -> Any:
    return -x


def shift(x: Any) -> Any:
    return x + 3


def halve(x: Any) -> Any:
    return x / 2


def scale_by(x: Any, *, factor: float) -> Any:
    return x * factor


FUNCTIONS = (double, negate, shift, halve)
NAMED = {function.__name__: function for function in FUNCTIONS}


def _call(x: Any, value: Any) -> Any:
    return value(x)


def _weighted(x: Any, values: Any) -> Any:
    """Depends on each number and on their order."""
    for value in values:
        x = x * 0.5 + value
    return x


def _set_item(key: Any) -> Edit:
    def set_item(_t: Toolbox, value: Any, n: int) -> None:
        value[key] = NUMBERS[n]

    return set_item


def _set_attribute(name: str, of: Callable[[Any], Any] = lambda value: value) -> Edit:
    def set_attribute(_t: Toolbox, value: Any, n: int) -> None:
        setattr(of(value), name, NUMBERS[n])

    return set_attribute


def _method(name: str, *, numbered: bool = True) -> Edit:
    def call(_t: Toolbox, value: Any, n: int) -> None:
        getattr(value, name)(*([NUMBERS[n]] if numbered else []))

    return call


# --- numbers, strings, constants


class Color(enum.Enum):
    """A constant that a program branches on."""

    RED = 1
    GREEN = 2
    BLUE = 3
    WHITE = 4


def _optional(x: Any, value: Any) -> Any:
    return x + 1 if value is None else x * value


def _branch(x: Any, value: Any) -> Any:
    return x * 2 if value else x - 1


def _repeat(x: Any, value: Any) -> Any:
    for _ in range(value):
        x = x * 1.5
    return x


CONSTANTS = {
    "number": Kind(make=lambda _t, n: NUMBERS[n], apply=lambda x, value: x * value),
    "integer": Kind(make=lambda _t, n: n + 1, apply=_repeat),
    "boolean": Kind(make=lambda _t, n: n % 2 == 0, apply=_branch),
    "string": Kind(make=lambda _t, n: FUNCTIONS[n].__name__, apply=lambda x, value: NAMED[value](x)),
    "optional": Kind(make=lambda _t, n: (None, 2.0, None, -1.0)[n], apply=_optional),
    "complex": Kind(make=lambda _t, n: complex(1, n), apply=lambda x, value: x * value.imag + value.real),
    "bytes": Kind(make=lambda _t, n: bytes([n, 3 - n]), apply=lambda x, value: x * value[0] + value[1]),
    "range": Kind(make=lambda _t, n: range(n, 4), apply=_weighted),
    "slice": Kind(make=lambda _t, n: slice(0, n + 1), apply=lambda x, value: x + x[..., value].sum()),
    "enum": Kind(make=lambda _t, n: list(Color)[n], apply=lambda x, value: x * value.value),
    "dtype": Kind(
        make=lambda _t, n: (torch.float32, torch.bfloat16, torch.float64, torch.float16)[n],
        apply=lambda x, value: (x.to(value) / 3).to(x.dtype),
    ),
    "size": Kind(make=lambda _t, n: torch.Size([n, 2]), apply=lambda x, value: x * value[1] + value[0]),
    "fill": Kind(make=lambda _t, n: NUMBERS[n], apply=lambda x, value: x + torch.full((1,), value, device=x.device)),
    "tuple": Kind(make=lambda _t, n: (NUMBERS[n], 1.0), apply=_weighted),
    "frozenset": Kind(
        make=lambda _t, n: frozenset({"a", "bcd"[n % 3]}), apply=lambda x, value: x * 2 if "b" in value else x - 1
    ),
}


# --- containers


class Pair(NamedTuple):
    """A tuple with names."""

    scale: float
    shift: float


class TaggedList(list[float]):
    """A list with an attribute of its own."""

    tag = 1.0


def _del_first(_t: Toolbox, value: Any, n: int) -> None:
    for key in list(value)[:1] if len(value) > 1 else []:
        del value[key]
    value["abcd"[n]] = NUMBERS[n]


def _pop(_t: Toolbox, value: Any, _n: int) -> None:
    if len(value) > 1:
        value.pop()


def _reorder(_t: Toolbox, value: Any, _n: int) -> None:
    key = next(iter(value))
    value[key] = value.pop(key)


def _reverse(_t: Toolbox, value: Any, _n: int) -> None:
    value[:] = value[::-1]


_LIST_EDITS: dict[str, Edit] = {
    "value[0] = number": _set_item(0),
    "value[-1] = number": _set_item(-1),
    "value.append(number)": _method("append"),
    "value.pop()": _pop,
    "value[:] = value[::-1]": _reverse,
}
_DICT_EDITS: dict[str, Edit] = {
    "value['a'] = number": _set_item("a"),
    "value['new'] = number": _set_item("new"),
    "another first key": _del_first,
    "another order": _reorder,
}


def _values(x: Any, value: Any) -> Any:
    return _weighted(x, [number + 0.1 * len(key) for key, number in value.items()])


def _set_apply(x: Any, value: Any) -> Any:
    return _weighted(x, sorted(value))


def _nested(_t: Toolbox, n: int) -> Any:
    return {"layers": [{"scales": [NUMBERS[n], 1.0]}, (collections.deque([2.0]), {"deep": Box(1.0)})]}


def _nested_apply(x: Any, value: Any) -> Any:
    first, (second, third) = value["layers"]
    return _weighted(x, [*first["scales"], *second, third["deep"].scale])


def _other_factory(_t: Toolbox, value: Any, n: int) -> None:
    value.pop("late", None)
    value.default_factory = lambda: NUMBERS[n]


class Box:
    """A plain object with one number."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def scaled(self, x: Any) -> Any:
        return x * self.scale


def _proxy(_t: Toolbox, n: int) -> Any:
    return Backed({"a": NUMBERS[n], "b": 1.0})


class Backed:
    """A read-only view, and the dictionary behind it."""

    def __init__(self, values: dict[str, float]) -> None:
        self.values = values
        self.view = types.MappingProxyType(values)


CONTAINERS = {
    "list": Kind(make=lambda _t, n: [NUMBERS[n], 1.0], apply=_weighted, edits=_LIST_EDITS),
    "list of lists": Kind(
        make=lambda _t, n: [[NUMBERS[n]], [1.0]],
        apply=lambda x, value: _weighted(x, [number for row in value for number in row]),
        edits={
            "value[1][0] = number": lambda _t, value, n: value[1].__setitem__(0, NUMBERS[n]),
            "value[0].append(number)": lambda _t, value, n: value[0].append(NUMBERS[n]),
            "value[0], value[1] = value[1], value[0]": _reverse,
        },
    ),
    "list subclass": Kind(
        make=lambda _t, n: TaggedList([NUMBERS[n], 1.0]),
        apply=lambda x, value: _weighted(x, value) * value.tag,
        edits=_LIST_EDITS | {"value.tag = number": _set_attribute("tag")},
    ),
    "dict": Kind(make=lambda _t, n: {"a": NUMBERS[n], "bb": 1.0}, apply=_values, edits=_DICT_EDITS),
    "OrderedDict": Kind(
        make=lambda _t, n: collections.OrderedDict(a=NUMBERS[n], bb=1.0),
        apply=_values,
        edits=_DICT_EDITS | {"move_to_end": lambda _t, value, _n: value.move_to_end(next(iter(value)))},
    ),
    "defaultdict": Kind(
        make=lambda _t, n: collections.defaultdict(float, a=NUMBERS[n], bb=1.0),
        apply=lambda x, value: _values(x, value) + value["late"],
        edits={
            "value['a'] = number": _set_item("a"),
            "value['late'] = number": _set_item("late"),
            "another default_factory": _other_factory,
        },
    ),
    "Counter": Kind(
        make=lambda _t, n: collections.Counter({"a": n + 1, "b": 1}),
        apply=lambda x, value: x * value["a"] + value["b"] + value["missing"],
        edits={"value.update('ab')": lambda _t, value, n: value.update("ab"[: n + 1])},
    ),
    "set": Kind(
        make=lambda _t, n: {NUMBERS[n], 1.0},
        apply=_set_apply,
        edits={
            "value.add(number)": _method("add"),
            "value.discard(number)": _method("discard"),
            "value.clear()": _method("clear", numbered=False),
        },
    ),
    "deque": Kind(
        make=lambda _t, n: collections.deque([NUMBERS[n], 1.0, 5.0], maxlen=3),
        apply=_weighted,
        edits={
            "value.append(number)": _method("append"),
            "value.appendleft(number)": _method("appendleft"),
            "value.rotate()": _method("rotate", numbered=False),
            "value.pop()": _pop,
            "value[0] = number": lambda _t, value, n: value and value.__setitem__(0, NUMBERS[n]),
        },
    ),
    "namedtuple": Kind(make=lambda _t, n: Pair(NUMBERS[n], 1.0), apply=lambda x, value: x * value.scale + value.shift),
    "nested": Kind(
        make=_nested,
        apply=_nested_apply,
        edits={
            "list in dict in list": lambda _t, value, n: value["layers"][0]["scales"].append(NUMBERS[n]),
            "deque in tuple": lambda _t, value, n: value["layers"][1][0].append(NUMBERS[n]),
            "object in dict in tuple": _set_attribute("scale", lambda value: value["layers"][1][1]["deep"]),
            "another object": lambda _t, value, n: value["layers"][1][1].__setitem__("deep", Box(NUMBERS[n])),
        },
    ),
    "ChainMap": Kind(
        make=lambda _t, n: collections.ChainMap({"a": NUMBERS[n]}, {"a": 7.0, "b": 1.0}),
        apply=lambda x, value: x * value["a"] + value["b"],
        edits={
            "maps[0]['a'] = number": _set_item("a"),
            "maps[0]['b'] = number": _set_item("b"),
            "maps[1]['b'] = number": lambda _t, value, n: value.maps[1].__setitem__("b", NUMBERS[n]),
        },
    ),
    "mapping proxy": Kind(
        make=_proxy,
        apply=lambda x, value: _values(x, value.view),
        edits={"dict behind it": lambda _t, value, n: value.values.__setitem__("a", NUMBERS[n])},
    ),
    "UserDict": Kind(
        make=lambda _t, n: collections.UserDict({"a": NUMBERS[n], "bb": 1.0}), apply=_values, edits=_DICT_EDITS
    ),
    "array": Kind(make=lambda _t, n: array.array("d", [NUMBERS[n], 1.0]), apply=_weighted, edits=_LIST_EDITS),
    "bytearray": Kind(
        make=lambda _t, n: bytearray([n, 1]),
        apply=lambda x, value: x * value[0] + value[1],
        edits={"value[1] = n": lambda _t, value, n: value.__setitem__(1, n)},
    ),
    "numpy array": Kind(
        make=lambda _t, n: np.array([NUMBERS[n], 1.0]),
        apply=lambda x, value: x * float(value[0]) + float(value[1]),
        edits={
            "value[0] = number": _set_item(0),
            "value *= 2": lambda _t, value, n: np.multiply(value, NUMBERS[n], out=value),
        },
    ),
}


# --- functions and other callables


def _with_defaults(_t: Toolbox, n: int) -> Any:
    def function(x: Any, factor: float = NUMBERS[n], *, addend: float = 1.0) -> Any:
        return x * factor + addend

    return function


def _with_attribute(_t: Toolbox, n: int) -> Any:
    def function(x: Any) -> Any:
        return x * function.factor  # type: ignore[attr-defined]

    function.factor = NUMBERS[n]  # type: ignore[attr-defined]
    return function


def _with_cells(_t: Toolbox, n: int) -> Any:
    factor, addends = NUMBERS[n], [1.0]

    def inner(x: Any) -> Any:
        return _weighted(x * factor, addends)

    return lambda x: inner(x) + 1


def _inner(value: Any) -> dict[str, Any]:
    inner = dict(zip(value.__code__.co_freevars, value.__closure__, strict=True))["inner"].cell_contents
    return dict(zip(inner.__code__.co_freevars, inner.__closure__, strict=True))


def _plain(_t: Toolbox, n: int) -> Any:
    return types.FunctionType(FUNCTIONS[n].__code__, {}, "plain")


def _wrapped(_t: Toolbox, n: int) -> Any:
    inner = _plain(_t, n)

    @functools.wraps(inner)
    def wrapper(*args: Any) -> Any:
        return inner(*args) + 1

    return wrapper


def _other_code(_t: Toolbox, value: Any, n: int) -> None:
    value.__code__ = FUNCTIONS[n].__code__


def _set_kwdefaults(_t: Toolbox, value: Any, n: int) -> None:
    value.__kwdefaults__ = {"addend": NUMBERS[n]}


def _set_defaults(_t: Toolbox, value: Any, n: int) -> None:
    value.__defaults__ = (NUMBERS[n],)


def _functional_class(_t: Toolbox, n: int) -> Any:
    class Operations:
        scale = NUMBERS[n]

        @staticmethod
        def static(x: Any) -> Any:
            return x + 1

        @classmethod
        def of_class(cls, x: Any) -> Any:
            return x * cls.scale

    return Operations


def _other_static(_t: Toolbox, value: Any, n: int) -> None:
    value.static = staticmethod(FUNCTIONS[n])


def _other_classmethod(_t: Toolbox, value: Any, n: int) -> None:
    value.of_class = classmethod(lambda cls, x: x * cls.scale + n)


def _callable_object(_t: Toolbox, n: int) -> Any:
    class Scaler:
        def __init__(self) -> None:
            self.scale = NUMBERS[n]

        def __call__(self, x: Any) -> Any:
            return self.helper(x) + 1

        def helper(self, x: Any) -> Any:
            return x * self.scale

    return Scaler()


def _patch_call(_t: Toolbox, value: Any, n: int) -> None:
    type(value).__call__ = lambda _self, x: x + NUMBERS[n]  # type: ignore[misc]


def _patch_helper(_t: Toolbox, value: Any, n: int) -> None:
    type(value).helper = lambda self, x: x - self.scale * n


def _shadow_helper(_t: Toolbox, value: Any, n: int) -> None:
    value.helper = FUNCTIONS[n]


CALLABLES = {
    "function": Kind(make=_plain, apply=_call, edits={"value.__code__ = other": _other_code}),
    "wrapped function": Kind(
        make=_wrapped,
        apply=_call,
        edits={"value.__wrapped__.__code__ = other": lambda t, value, n: _other_code(t, value.__wrapped__, n)},
    ),
    "function with defaults": Kind(
        make=_with_defaults,
        apply=_call,
        edits={"value.__defaults__ = number": _set_defaults, "value.__kwdefaults__ = number": _set_kwdefaults},
    ),
    "function with attribute": Kind(
        make=_with_attribute, apply=_call, edits={"value.factor = number": _set_attribute("factor")}
    ),
    "lambda with cells": Kind(
        make=_with_cells,
        apply=_call,
        edits={
            "number in a cell": _set_attribute("cell_contents", lambda value: _inner(value)["factor"]),
            "list in a cell": lambda _t, value, n: _inner(value)["addends"].cell_contents.append(NUMBERS[n]),
        },
    ),
    "built-in function": Kind(make=lambda _t, n: (torch.tanh, torch.neg, torch.exp, torch.abs)[n], apply=_call),
    "bound method": Kind(
        make=lambda _t, n: Box(NUMBERS[n]).scaled,
        apply=_call,
        edits={"value.__self__.scale = number": _set_attribute("scale", lambda value: value.__self__)},
    ),
    "partial": Kind(
        make=lambda _t, n: functools.partial(scale_by, factor=NUMBERS[n]),
        apply=_call,
        edits={"value.keywords['factor'] = number": lambda _t, value, n: value.keywords.update(factor=NUMBERS[n])},
    ),
    "class": Kind(
        make=_functional_class,
        apply=lambda x, value: value.static(x) + value.of_class(x),
        edits={
            "value.scale = number": _set_attribute("scale"),
            "value.static = other": _other_static,
            "value.of_class = other": _other_classmethod,
        },
    ),
    "callable object": Kind(
        make=_callable_object,
        apply=_call,
        edits={
            "value.scale = number": _set_attribute("scale"),
            "type(value).__call__ = other": _patch_call,
            "type(value).helper = other": _patch_helper,
            "value.helper = function": _shadow_helper,
        },
    ),
}


# --- objects


@dataclass
class Settings:
    """A data class that can be edited."""

    scale: float
    names: list[str]


@dataclass(frozen=True)
class Frozen:
    """A data class that can only be replaced, with a list inside."""

    scale: float
    shifts: list[float]


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("extra", "scale")

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Derived(Slotted):
    """Inherits its slots, and has a dictionary too."""


class Typed:
    """A descriptor that keeps its values in itself."""

    def __init__(self) -> None:
        self.kept: dict[str, float] = {}

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.kept["value"]

    def __set__(self, instance: Any, value: float) -> None:
        self.kept["value"] = value


def _described(_t: Toolbox, n: int) -> Any:
    class Described:
        scale = Typed()

    value = Described()
    value.scale = NUMBERS[n]
    return value


def _object(_t: Toolbox, n: int) -> Any:
    class Base:
        offset = 1.0
        _scale: float
        child: Box

        def applied(self, x: Any) -> Any:
            return x * self.scale + self.offset + self.child.scale

        @property
        def scale(self) -> Any:
            return self._scale

    class Thing(Base):
        def __init__(self) -> None:
            self._scale = NUMBERS[n]
            self.child = Box(1.0)

    class Other(Base):
        offset = -3.0

        def applied(self, x: Any) -> Any:
            return x - self.scale

    value = Thing()
    value.other_class = Other  # type: ignore[attr-defined]
    return value


def _forget_offset(_t: Toolbox, value: Any, n: int) -> None:
    if "offset" in vars(value):
        del value.offset
    else:
        value.offset = NUMBERS[n]


def _patch_applied(_t: Toolbox, value: Any, n: int) -> None:
    type(value).applied = lambda self, x: x * self.scale - n


def _patch_property(_t: Toolbox, value: Any, n: int) -> None:
    type(value).scale = property(lambda self: self._scale + n)


def _other_class(_t: Toolbox, value: Any, _n: int) -> None:
    if isinstance(value, value.other_class):
        value.offset = 9.0
    else:
        value.__class__ = value.other_class


def _replace_child(_t: Toolbox, value: Any, n: int) -> None:
    value.child = Box(NUMBERS[n])


def _dynamic(_t: Toolbox, n: int) -> Any:
    class Dynamic:
        def __init__(self) -> None:
            self.store = {"scale": NUMBERS[n]}

        def __getattr__(self, name: str) -> Any:
            try:
                return self.__dict__["store"][name]
            except KeyError:
                raise AttributeError(name) from None

    return Dynamic()


def _toggle_attribute(_t: Toolbox, value: Any, n: int) -> None:
    if hasattr(value, "extra"):
        del value.extra
    else:
        value.extra = NUMBERS[n]


def _scaled(x: Any, value: Any) -> Any:
    return x * value.scale


def _scaled_and_extra(x: Any, value: Any) -> Any:
    return x * value.scale + getattr(value, "extra", 0.5)


OBJECTS = {
    "object": Kind(
        make=_object,
        apply=lambda x, value: value.applied(x),
        edits={
            "value._scale = number": _set_attribute("_scale"),
            "value.offset = number, or del": _forget_offset,
            "type(value).offset = number": _set_attribute("offset", type),
            "base.offset = number": _set_attribute("offset", lambda value: type(value).__mro__[-2]),
            "value.child.scale = number": _set_attribute("scale", lambda value: value.child),
            "value.child = other": _replace_child,
            "type(value).applied = other": _patch_applied,
            "type(value).scale = other property": _patch_property,
            "value.__class__ = other": _other_class,
        },
    ),
    "boxed number": Kind(
        make=lambda _t, n: Box(NUMBERS[n]),
        apply=_scaled_and_extra,
        edits={"value.scale = number": _set_attribute("scale"), "value.extra = number, or del": _toggle_attribute},
    ),
    "slots": Kind(
        make=lambda _t, n: Slotted(NUMBERS[n]),
        apply=_scaled_and_extra,
        edits={"value.scale = number": _set_attribute("scale"), "value.extra = number, or del": _toggle_attribute},
    ),
    "inherited slots": Kind(
        make=lambda _t, n: Derived(NUMBERS[n]),
        apply=_scaled_and_extra,
        edits={"value.scale = number": _set_attribute("scale")},
    ),
    "data class": Kind(
        make=lambda _t, n: Settings(NUMBERS[n], ["double"]),
        apply=lambda x, value: NAMED[value.names[-1]](x) * value.scale,
        edits={
            "value.scale = number": _set_attribute("scale"),
            "value.names.append(name)": lambda _t, value, n: value.names.append(FUNCTIONS[n].__name__),
        },
    ),
    "frozen data class": Kind(
        make=lambda _t, n: Frozen(NUMBERS[n], [1.0]),
        apply=lambda x, value: _weighted(x * value.scale, value.shifts),
        edits={
            "value.shifts.append(number)": lambda _t, value, n: value.shifts.append(NUMBERS[n]),
            "object.__setattr__(value, 'scale', number)": lambda _t, value, n: object.__setattr__(
                value, "scale", NUMBERS[n]
            ),
        },
    ),
    "namespace": Kind(
        make=lambda _t, n: types.SimpleNamespace(scale=NUMBERS[n]),
        apply=_scaled_and_extra,
        edits={"value.scale = number": _set_attribute("scale"), "value.extra = number, or del": _toggle_attribute},
    ),
    "descriptor": Kind(make=_described, apply=_scaled, edits={"value.scale = number": _set_attribute("scale")}),
    "__getattr__": Kind(
        make=_dynamic,
        apply=_scaled,
        edits={"value.store['scale'] = number": lambda _t, value, n: value.store.update(scale=NUMBERS[n])},
    ),
}


# --- synthetic modules

_SOURCES = tuple(
    f"""
import torch
FACTOR = {NUMBERS[n]}
activation = torch.nn.functional.{("relu", "silu", "gelu", "softplus")[n]}
TABLE = {{"double": lambda x: x * FACTOR, "negate": lambda x: -x * FACTOR}}
mode = "double"
calls = 0
def applied(x):
    return TABLE[mode](activation(x)) + x
def counted(x):
    global calls
    calls += 1
    return x * calls
"""
    for n in range(4)
)


def _source_module(_t: Toolbox, n: int) -> Any:
    module = types.ModuleType("synthetic")
    exec(_SOURCES[n], module.__dict__)  # noqa: S102
    return module


def _patch_activation(_t: Toolbox, value: Any, n: int) -> None:
    value.activation = (torch.tanh, torch.sin, torch.nn.functional.elu, torch.nn.functional.relu)[n]


def _patch_module_function(_t: Toolbox, value: Any, n: int) -> None:
    value.applied = FUNCTIONS[n]


def _patch_mode(_t: Toolbox, value: Any, n: int) -> None:
    value.mode = ("double", "negate")[n % 2]


PYTHON_MODULES = {
    "python module": Kind(
        make=_source_module,
        apply=lambda x, value: value.applied(x),
        edits={
            "module.FACTOR = number": _set_attribute("FACTOR"),
            "module.activation = other": _patch_activation,
            "module.applied = other": _patch_module_function,
            "module.mode = name": _patch_mode,
            "module.TABLE[name] = other": lambda _t, value, n: value.TABLE.update(double=FUNCTIONS[n]),
            "reload": lambda _t, value, n: exec(_SOURCES[n], value.__dict__),  # noqa: S102
        },
    ),
    "function of a python module": Kind(
        make=lambda t, n: _source_module(t, n).applied,
        apply=_call,
        edits={
            "FACTOR = number": lambda _t, value, n: value.__globals__.update(FACTOR=NUMBERS[n]),
            "activation = other": lambda _t, value, n: value.__globals__.update(activation=FUNCTIONS[n]),
            "reload": lambda _t, value, n: exec(_SOURCES[n], value.__globals__),  # noqa: S102
        },
    ),
}


# --- tensors and nn.Modules


def _times(x: Any, value: Any) -> Any:
    return x * value.to(x.dtype)


def _in_place(t: Toolbox, value: Any, n: int) -> None:
    with torch.no_grad():
        value.copy_(t.tensor(50 + n, *value.shape))


def _move(_t: Toolbox, value: Any, _n: int) -> None:
    value.data = value.data.clone()


def _new_data(_t: Toolbox, value: Any, n: int) -> None:
    value.data = value.data * NUMBERS[n]


def _toggle_grad(_t: Toolbox, value: Any, _n: int) -> None:
    if not value.is_inference():
        value.requires_grad_(not value.requires_grad)


_TENSOR_EDITS: dict[str, Edit] = {
    "value.copy_(other)": _in_place,
    "value.data = value.data.clone()": _move,
    "value.data = value.data * number": _new_data,
    "value.requires_grad_()": _toggle_grad,
}

TENSORS = {
    "tensor": Kind(make=lambda t, n: t.tensor(n), apply=_times, edits=_TENSOR_EDITS),
    "parameter": Kind(make=lambda t, n: nn.Parameter(t.tensor(n)), apply=_times, edits=_TENSOR_EDITS),
    "CPU scalar tensor": Kind(
        make=lambda _t, n: torch.tensor(NUMBERS[n]),
        apply=lambda x, value: x * value,
        edits={"value.fill_(number)": lambda _t, value, n: value.fill_(NUMBERS[n])},
    ),
    "list of tensors": Kind(
        make=lambda t, n: [t.tensor(n), t.tensor(9)],
        apply=lambda x, value: sum((_times(x, tensor) for tensor in value), x),
        edits={
            "value[0] = other": lambda t, value, n: value.__setitem__(0, t.tensor(20 + n)),
            "value.append(other)": lambda t, value, n: value.append(t.tensor(30 + n)),
            "value[-1].mul_(number)": lambda _t, value, n: value[-1].mul_(NUMBERS[n]),
            "value.reverse()": lambda _t, value, _n: value.reverse(),
        },
    ),
    "dict of tensors": Kind(
        make=lambda t, n: {"a": t.tensor(n), "b": t.tensor(9)},
        apply=lambda x, value: _times(x, value["a"]) + value["b"].to(x.dtype),
        edits={
            "value['a'] = other": lambda t, value, n: value.update(a=t.tensor(20 + n)),
            "value['a'], value['b'] swapped": lambda _t, value, _n: value.update(a=value["b"], b=value["a"]),
            "value['b'].add_(number)": lambda _t, value, n: value["b"].add_(NUMBERS[n]),
        },
    ),
}


def _linear(x: Any, value: Any) -> Any:
    return value(x.to(value.weight.dtype)).to(x.dtype)


def _load(t: Toolbox, value: Any, n: int, *, assign: bool = False) -> None:
    entries = enumerate(value.state_dict().items())
    value.load_state_dict({k: t.tensor(60 + 7 * n + i, *v.shape) for i, (k, v) in entries}, assign=assign)


def _replace_parameter(t: Toolbox, value: Any, n: int) -> None:
    value.weight = nn.Parameter(t.tensor(70 + n, *value.weight.shape))


def _no_bias(t: Toolbox, value: Any, n: int) -> None:
    value.bias = None if value.bias is not None else nn.Parameter(t.tensor(80 + n))


def _cast(_t: Toolbox, value: Any, n: int) -> None:
    value.to((torch.float64, torch.float32, torch.bfloat16, torch.float32)[n])


def _add_hook(_t: Toolbox, value: Any, n: int) -> None:
    value.register_forward_hook(lambda _module, _args, out: out * NUMBERS[n])


def _add_pre_hook(_t: Toolbox, value: Any, n: int) -> None:
    value.register_forward_pre_hook(lambda _module, args: (args[0] + NUMBERS[n],))


def _remove_hooks(_t: Toolbox, value: Any, _n: int) -> None:
    value._forward_hooks.clear()
    value._forward_pre_hooks.clear()


def _edit_hook(_t: Toolbox, value: Any, n: int) -> None:
    """Replace each hook by another one: their number stays."""
    for key in value._forward_hooks:
        value._forward_hooks[key] = lambda _module, _args, out: out - NUMBERS[n]


def _override_forward(_t: Toolbox, value: Any, n: int) -> None:
    def forward(x: Any) -> Any:
        return x * NUMBERS[n]

    value.forward = forward


class Doubled(nn.Module):  # type: ignore[misc]
    """A parametrization."""

    def forward(self, x: Any) -> Any:
        return x * 2


def _parametrize(_t: Toolbox, value: Any, _n: int) -> None:
    from torch.nn.utils import parametrize

    if parametrize.is_parametrized(value):
        parametrize.remove_parametrizations(value, "weight")
    else:
        parametrize.register_parametrization(value, "weight", Doubled())


def _tree(t: Toolbox, n: int) -> Any:
    class Leaf(nn.Module):  # type: ignore[misc]
        gain = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(t.tensor(n))
            self.register_buffer("offset", t.tensor(40 + n))
            self.settings = {"scale": NUMBERS[n]}

        def forward(self, x: Any) -> Any:
            return self.helper(x) * self.gain + self.offset.to(x.dtype)

        def helper(self, x: Any) -> Any:
            return x * self.weight.to(x.dtype) * self.settings["scale"]

    class Tree(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.leaf, self.other = Leaf(), Leaf()
            self.depth = 1
            self.training_scale = 2.0

        def forward(self, x: Any) -> Any:
            for _ in range(self.depth):
                x = self.leaf(x)
            return self.other(x) * (self.training_scale if self.training else 1.0)

    return Tree()


def _set_depth(_t: Toolbox, value: Any, n: int) -> None:
    value.depth = n


def _swap_leaves(_t: Toolbox, value: Any, _n: int) -> None:
    value.leaf, value.other = value.other, value.leaf


def _share_leaves(_t: Toolbox, value: Any, _n: int) -> None:
    value.leaf = value.other


def _replace_leaf(_t: Toolbox, value: Any, n: int) -> None:
    value.leaf = nn.Identity() if n % 2 else type(value.other)()


def _patch_forward(_t: Toolbox, value: Any, n: int) -> None:
    type(value.other).forward = lambda self, x: self.helper(x) - n


def _patch_leaf_helper(_t: Toolbox, value: Any, n: int) -> None:
    type(value.other).helper = lambda _self, x: x * NUMBERS[n]


def _new_buffer(t: Toolbox, value: Any, n: int) -> None:
    value.other.offset = t.tensor(90 + n)


def _train(_t: Toolbox, value: Any, n: int) -> None:
    value.train(n % 2 == 0)


_MODULE_EDITS: dict[str, Edit] = {
    "weight.copy_(other)": lambda t, value, n: _in_place(t, value.weight, n),
    "weight.data = weight.data.clone()": lambda t, value, n: _move(t, value.weight, n),
    "weight.data = weight.data * number": lambda t, value, n: _new_data(t, value.weight, n),
    "weight = Parameter(other)": _replace_parameter,
    "bias = None, or Parameter": _no_bias,
    "load_state_dict(other)": _load,
    "load_state_dict(other, assign=True)": lambda t, value, n: _load(t, value, n, assign=True),
    "to(dtype)": _cast,
    "requires_grad_()": lambda _t, value, n: value.requires_grad_(n % 2 == 0),
    "register_forward_hook": _add_hook,
    "register_forward_pre_hook": _add_pre_hook,
    "remove hooks": _remove_hooks,
    "replace hooks": _edit_hook,
    "forward = function": _override_forward,
}

MODULES = {
    "Linear": Kind(make=lambda t, n: t.module(nn.Linear(WIDTH, WIDTH), n), apply=_linear, edits=_MODULE_EDITS),
    "parametrized Linear": Kind(
        make=lambda t, n: t.module(nn.Linear(WIDTH, WIDTH), n),
        apply=_linear,
        edits={"parametrize": _parametrize, "forward = function": _override_forward},
    ),
    "module tree": Kind(
        make=_tree,
        apply=_call,
        edits={
            "depth = n": _set_depth,
            "training_scale = number": _set_attribute("training_scale"),
            "train(mode)": _train,
            "leaf.settings['scale'] = number": lambda _t, value, n: getattr(value.leaf, "settings", {}).update(
                scale=NUMBERS[n]
            ),
            "leaf, other = other, leaf": _swap_leaves,
            "leaf = other": _share_leaves,
            "leaf = Leaf(), or Identity()": _replace_leaf,
            "other.weight.copy_(other)": lambda t, value, n: _in_place(
                t, getattr(value.other, "weight", t.tensor(0)), n
            ),
            "Leaf.forward = function": _patch_forward,
            "Leaf.helper = function": _patch_leaf_helper,
            "Leaf.gain = number": _set_attribute("gain", lambda value: type(value.other)),
            "other.offset = other tensor": _new_buffer,
            "half(), float()": lambda _t, value, n: value.to((torch.float64, torch.float32)[n % 2]),
        },
    ),
    "Dropout": Kind(
        make=lambda _t, n: nn.Dropout(0.1 + 0.2 * n),
        apply=_call,
        edits={"train(mode)": _train, "p = number": lambda _t, value, n: setattr(value, "p", 0.2 + 0.2 * n)},
    ),
    "BatchNorm1d": Kind(
        make=lambda t, n: t.module(nn.BatchNorm1d(WIDTH), n),
        apply=_linear,
        edits={
            "train(mode)": _train,
            "momentum = number": lambda _t, value, n: setattr(value, "momentum", 0.1 + 0.2 * n),
            "reset_running_stats()": _method("reset_running_stats", numbered=False),
            "running_mean = other": lambda t, value, n: setattr(value, "running_mean", t.tensor(n)),
        },
    ),
    "ModuleList": Kind(
        make=lambda t, n: t.module(nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Tanh()]), n),
        apply=lambda x, value: functools.reduce(lambda y, m: _linear(y, m) if hasattr(m, "weight") else m(y), value, x),
        edits={
            "value[1] = other": lambda _t, value, n: value.__setitem__(1, (nn.ReLU, nn.Sigmoid, nn.GELU, nn.ELU)[n]()),
            "value.append(other)": lambda _t, value, n: value.append((nn.ReLU, nn.Sigmoid, nn.GELU, nn.ELU)[n]()),
            "del value[-1]": lambda _t, value, _n: len(value) > 1 and value.__delitem__(-1),
            "value.insert(0, other)": lambda _t, value, _n: value.insert(0, nn.Softplus()),
        },
    ),
    "ModuleDict": Kind(
        make=lambda _t, n: nn.ModuleDict({"act": (nn.ReLU, nn.Sigmoid, nn.GELU, nn.ELU)[n]()}),
        apply=lambda x, value: functools.reduce(lambda y, name: value[name](y) + len(name), value, x),
        edits={
            "value['act'] = other": lambda _t, value, n: value.update(
                {"act": (nn.ReLU(), nn.Sigmoid(), nn.GELU(), nn.ELU())[n]}
            ),
            "value['other'] = other": lambda _t, value, _n: value.update({"other": nn.Softplus()}),
        },
    ),
    "ParameterList": Kind(
        make=lambda t, n: nn.ParameterList([t.tensor(n), t.tensor(9)]),
        apply=lambda x, value: sum((_times(x, parameter) for parameter in value), x),
        edits={
            "value[0] = other": lambda t, value, n: value.__setitem__(0, nn.Parameter(t.tensor(20 + n))),
            "value.append(other)": lambda t, value, n: value.append(nn.Parameter(t.tensor(30 + n))),
            "value[1].copy_(other)": lambda t, value, n: _in_place(t, value[1], n),
        },
    ),
    "Sequential": Kind(
        make=lambda t, n: t.module(nn.Sequential(nn.Tanh(), nn.LayerNorm(WIDTH)), n),
        apply=lambda x, value: value(x.float()).to(x.dtype) if len(value) else x,
        edits={
            "value[0] = other": lambda _t, value, n: value.__setitem__(0, (nn.ReLU, nn.Sigmoid, nn.GELU, nn.ELU)[n]()),
            "value[0] = nn.ReLU, class kept": lambda _t, value, n: (
                setattr(value[0], "__class__", nn.ReLU6 if n else nn.Tanh) if isinstance(value[0], nn.Tanh) else None
            ),
            "value[1].eps = number": lambda _t, value, n: setattr(value[1], "eps", 0.1 * (n + 1)),
            "value.append(other)": lambda _t, value, _n: value.append(nn.Sigmoid()),
        },
    ),
}


def _draw(x: Any, value: Any) -> Any:
    return x + torch.rand(x.shape, generator=value, device=x.device)


RANDOM = {
    "torch.Generator": Kind(
        make=lambda t, n: torch.Generator(device=t.device).manual_seed(n),
        apply=_draw,
        edits={"value.manual_seed(n)": lambda _t, value, n: value.manual_seed(n)},
    ),
    "noise": Kind(make=lambda _t, n: NUMBERS[n], apply=lambda x, value: x + value * torch.rand_like(x)),
}

# --- values that the program itself changes


def _write_log(x: Any, value: Any) -> Any:
    value.append(f"call {len(value)}")
    return x * len(value)


def _count(x: Any, value: Any) -> Any:
    value.scale += 1
    return x * value.scale


def _count_extra(x: Any, value: Any) -> Any:
    value.extra = getattr(value, "extra", 0) + 1
    return x * value.scale


def _ring(x: Any, value: Any) -> Any:
    value.append(value[0] * 0.5 + 1)
    return x * value[0]


def _consume(x: Any, value: Any) -> Any:
    return x * value.pop() if value else x


def _insert(x: Any, value: Any) -> Any:
    value[f"step {len(value)}"] = 1.0
    return _values(x, value)


def _remember_shape(x: Any, value: Any) -> Any:
    key = (tuple(x.shape), x.dtype)
    if key not in value:
        value[key] = torch.ones(x.shape, dtype=x.dtype, device=x.device) * (len(value) + 1)
    return x + value[key]


def _add_member(x: Any, value: Any) -> Any:
    value.add(float(len(value)))
    return _set_apply(x, value)


def _keep_last(x: Any, value: Any) -> Any:
    y = x if value.last is None or value.last.shape != x.shape else x + value.last.to(x.dtype)
    value.last = x.detach() * 2
    return y


def _keep_all(x: Any, value: Any) -> Any:
    value.append(x.detach() + 1)
    del value[:-3]
    return x + len(value)


def _lazy(x: Any, value: Any) -> Any:
    if value.table is None:
        value.table = torch.arange(WIDTH, device=x.device, dtype=torch.float32)
    return x + value.table.to(x.dtype)


def _accumulate(x: Any, value: Any) -> Any:
    value.mul_(0.5).add_(x.detach().sum(0).to(value.dtype))
    return x + value.to(x.dtype)


def _accumulate_in_list(x: Any, value: Any) -> Any:
    value[0].copy_(value[1])
    value[1].copy_(x.detach()[0])
    return x + value[0].to(x.dtype)


class Cache:
    """A key-value cache: memory that is written to, and the position in it."""

    def __init__(self, t: Toolbox, n: int) -> None:
        self.keys = torch.zeros(8, WIDTH, device=t.device)
        self.position = n

    def applied(self, x: Any) -> Any:
        self.keys[self.position % 8] = x.detach()[0].to(self.keys.dtype)
        self.position += 1
        return x + self.keys[: self.position].sum(0).to(x.dtype)


class TensorCache:
    """A key-value cache whose position is a tensor, so that a graph can advance it."""

    def __init__(self, t: Toolbox, n: int) -> None:
        self.keys = torch.zeros(8, WIDTH, device=t.device)
        self.position = torch.full((1,), n, dtype=torch.int64, device=t.device)

    def applied(self, x: Any) -> Any:
        self.keys.index_copy_(0, self.position % 8, x.detach()[:1].to(self.keys.dtype))
        self.position.add_(1)
        return x + self.keys.sum(0).to(x.dtype)


def _nonlocal_counter(_t: Toolbox, n: int) -> Any:
    calls = n

    def counted(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * calls

    return counted


def _attribute_counter(_t: Toolbox, n: int) -> Any:
    def counted(x: Any) -> Any:
        counted.calls += 1  # type: ignore[attr-defined]
        return x * 2

    counted.calls = n  # type: ignore[attr-defined]
    return counted


def _class_counter(_t: Toolbox, n: int) -> Any:
    class Counter:
        calls = n

        def applied(self, x: Any) -> Any:
            type(self).calls += 1
            return x * self.calls

    return Counter()


def _counting_module(t: Toolbox, n: int) -> Any:
    class Counting(nn.Module):  # type: ignore[misc]
        total: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", t.tensor(n))
            self.steps = 0

        def forward(self, x: Any) -> Any:
            self.steps += 1
            self.total = self.total * 0.5 + x.detach().sum(0).to(self.total.dtype)
            return x + self.total.to(x.dtype)

    return Counting()


def _write_input(x: Any, value: Any) -> Any:
    x.mul_(value)
    return x + 1


def _applied(x: Any, value: Any) -> Any:
    return value.applied(x)


EFFECTS = {
    "accumulated tensor": Kind(
        make=lambda t, n: t.tensor(n), apply=_accumulate, edits={"value.copy_(other)": _in_place}
    ),
    "accumulated tensors in a list": Kind(
        make=lambda t, n: [t.tensor(n), t.tensor(9)],
        apply=_accumulate_in_list,
        edits={
            "value[0] = other": lambda t, value, n: value.__setitem__(0, t.tensor(20 + n)),
            "value.reverse()": lambda _t, value, _n: value.reverse(),
        },
    ),
    "cache with a tensor position": Kind(
        make=TensorCache,
        apply=_applied,
        edits={
            "value.keys = zeros": lambda t, value, _n: setattr(value, "keys", torch.zeros(8, WIDTH, device=t.device)),
            "value.position.fill_(n)": lambda _t, value, n: value.position.fill_(n),
        },
    ),
    "cache with an integer position": Kind(
        make=Cache, apply=_applied, edits={"value.position = n": lambda _t, value, n: setattr(value, "position", n)}
    ),
    "lazily made table": Kind(
        make=lambda _t, _n: types.SimpleNamespace(table=None),
        apply=_lazy,
        edits={
            "value.table = None": lambda _t, value, _n: setattr(value, "table", None),
            "value.table = other": lambda t, value, n: setattr(value, "table", t.tensor(n)),
        },
    ),
    "table for each shape": Kind(
        make=lambda _t, _n: {},
        apply=_remember_shape,
        edits={"value.clear()": _method("clear", numbered=False)},
    ),
    "log": Kind(make=lambda _t, _n: [], apply=_write_log, edits={"value.clear()": _method("clear", numbered=False)}),
    "counter": Kind(
        make=lambda _t, n: Box(float(n)), apply=_count, edits={"value.scale = number": _set_attribute("scale")}
    ),
    "new attribute": Kind(make=lambda _t, n: Box(NUMBERS[n]), apply=_count_extra),
    "counter in slots": Kind(make=lambda _t, n: Slotted(float(n)), apply=_count),
    "counter in a data class": Kind(make=lambda _t, n: Settings(float(n), []), apply=_count),
    "counter in a cell": Kind(make=_nonlocal_counter, apply=_call),
    "counter on a function": Kind(make=_attribute_counter, apply=_call),
    "counter on a class": Kind(make=_class_counter, apply=_applied),
    "counter of a python module": Kind(
        make=lambda t, n: _source_module(t, n).counted,
        apply=_call,
        edits={"calls = n": lambda _t, value, n: value.__globals__.update(calls=n)},
    ),
    "counting module": Kind(make=_counting_module, apply=_call),
    "ring": Kind(
        make=lambda _t, n: collections.deque([NUMBERS[n], 1.0], maxlen=2),
        apply=_ring,
        edits={"value.rotate()": _method("rotate", numbered=False)},
    ),
    "queue": Kind(
        make=lambda _t, n: [*NUMBERS, float(n)], apply=_consume, edits={"value.append(number)": _method("append")}
    ),
    "journal": Kind(make=lambda _t, n: {"start": NUMBERS[n]}, apply=_insert),
    "growing set": Kind(make=lambda _t, n: {float(n)}, apply=_add_member),
    "last input": Kind(make=lambda _t, _n: types.SimpleNamespace(last=None), apply=_keep_last),
    "last inputs": Kind(make=lambda _t, _n: [], apply=_keep_all),
    "written input": Kind(make=lambda _t, n: NUMBERS[n], apply=_write_input),
}

PURE = CONSTANTS | CONTAINERS | CALLABLES | OBJECTS | PYTHON_MODULES | TENSORS | MODULES | RANDOM
KINDS = PURE | EFFECTS


# --- places


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A callable that reads a value, and access to the value from outside."""

    call: Callable[..., Any]
    get: Callable[[], Any]
    set: Callable[[Any], None]


Apply = Callable[[Any, Any], Any]
Place = Callable[[Apply, Any], Spot]


def _attribute_of(owner: Any, call: Any, name: str = "held") -> Spot:
    return Spot(call=call, get=lambda: getattr(owner, name), set=lambda value: setattr(owner, name, value))


def _item_of(owner: Any, key: Any, call: Any) -> Spot:
    return Spot(call=call, get=lambda: owner[key], set=lambda value: owner.__setitem__(key, value))


def module_attribute(apply: Apply, value: Any) -> Spot:
    class Holder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = value

        def forward(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder()
    return _attribute_of(holder, holder)


def child_attribute(apply: Apply, value: Any) -> Spot:
    """An attribute of an object that a module has."""

    class Config:
        held = value

    class Holder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.config = Config()
            self.config.held = value

        def forward(self, x: Any) -> Any:
            return apply(x, self.config.held)

    holder = Holder()
    return _attribute_of(holder.config, holder)


def object_attribute(apply: Apply, value: Any) -> Spot:
    class Holder:
        def __init__(self) -> None:
            self.held = value

        def __call__(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder()
    return _attribute_of(holder, holder)


def method_of_object(apply: Apply, value: Any) -> Spot:
    class Holder:
        def __init__(self) -> None:
            self.held = value

        def run(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder()
    return _attribute_of(holder, holder.run)


def slots_attribute(apply: Apply, value: Any) -> Spot:
    class Holder:
        __slots__ = ("held",)
        held: Any

        def __call__(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder()
    holder.held = value
    return _attribute_of(holder, holder)


def property_(apply: Apply, value: Any) -> Spot:
    class Holder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._held = value

        @property
        def held(self) -> Any:
            return self._held

        def forward(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder()
    return _attribute_of(holder, holder, "_held")


def data_class_field(apply: Apply, value: Any) -> Spot:
    @dataclass
    class Holder:
        held: Any

        def __call__(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder(value)
    return _attribute_of(holder, holder)


def class_attribute(apply: Apply, value: Any) -> Spot:
    class Holder(nn.Module):  # type: ignore[misc]
        held: Any = None

        def forward(self, x: Any) -> Any:
            return apply(x, Holder.held)

    Holder.held = value
    return _attribute_of(Holder, Holder())


def base_class_attribute(apply: Apply, value: Any) -> Spot:
    class Base:
        table: Any = None

    class Holder(Base):
        def __call__(self, x: Any) -> Any:
            return apply(x, self.table[0])

    Base.table = (value,)
    return Spot(call=Holder(), get=lambda: Base.table[0], set=lambda new: setattr(Base, "table", (new,)))


def list_item(apply: Apply, value: Any) -> Spot:
    values = [None, value]
    return _item_of(values, 1, lambda x: apply(x, values[1]))


def dict_value(apply: Apply, value: Any) -> Spot:
    class Holder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.values = {"held": value}

        def forward(self, x: Any) -> Any:
            return apply(x, self.values["held"])

    holder = Holder()
    return _item_of(holder.values, "held", holder)


def ordered_dict_value(apply: Apply, value: Any) -> Spot:
    values = collections.OrderedDict(held=value)
    return _item_of(values, "held", lambda x: apply(x, values["held"]))


def default_dict_value(apply: Apply, value: Any) -> Spot:
    values: Any = collections.defaultdict(list, held=value)
    return _item_of(values, "held", lambda x: apply(x, values["held"]))


def deque_item(apply: Apply, value: Any) -> Spot:
    values = collections.deque([value], maxlen=2)
    return Spot(call=lambda x: apply(x, values[-1]), get=lambda: values[-1], set=values.append)


def nested_item(apply: Apply, value: Any) -> Spot:
    values: Any = {"a": [({"held": value},)]}
    return _item_of(values["a"][0][0], "held", lambda x: apply(x, values["a"][0][0]["held"]))


def registry(apply: Apply, value: Any) -> Spot:
    """A function that a string names in a dictionary of a Python module."""
    module = types.ModuleType("registry")
    module.REGISTRY = {"first": lambda x: apply(x, value)}  # type: ignore[attr-defined]
    kept = [value]

    class Holder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.name = "first"

        def forward(self, x: Any) -> Any:
            return module.REGISTRY[self.name](x)

    holder = Holder()

    def add(new: Any) -> None:
        kept[0] = new
        holder.name = "second" if holder.name == "first" else "first"
        module.REGISTRY[holder.name] = lambda x: apply(x, new)

    return Spot(call=holder, get=lambda: kept[0], set=add)


def closure_cell(apply: Apply, value: Any) -> Spot:
    held = value

    def assign(new: Any) -> None:
        nonlocal held
        held = new

    return Spot(call=lambda x: apply(x, held), get=lambda: held, set=assign)


def module_global(apply: Apply, value: Any) -> Spot:
    module = types.ModuleType("globals_of_a_part")
    exec("def call(x):\n    return apply(x, held)\n", module.__dict__)  # noqa: S102
    module.apply, module.held = apply, value  # type: ignore[attr-defined]
    return _attribute_of(module, module.call)


def default_argument(apply: Apply, value: Any) -> Spot:
    def call(x: Any, held: Any = value) -> Any:
        return apply(x, held)

    def assign(new: Any) -> None:
        call.__defaults__ = (new,)

    return Spot(call=call, get=lambda: call.__defaults__[0], set=assign)  # type: ignore[index]


def keyword_default(apply: Apply, value: Any) -> Spot:
    def call(x: Any, *, held: Any = value) -> Any:
        return apply(x, held)

    defaults: Any = call.__kwdefaults__
    return _item_of(defaults, "held", call)


def function_attribute(apply: Apply, value: Any) -> Spot:
    def call(x: Any) -> Any:
        return apply(x, call.held)  # type: ignore[attr-defined]

    call.held = value  # type: ignore[attr-defined]
    return _attribute_of(call, call)


def partial_keyword(apply: Apply, value: Any) -> Spot:
    def call(x: Any, *, held: Any) -> Any:
        return apply(x, held)

    part = functools.partial(call, held=value)
    return _item_of(part.keywords, "held", part)


def hook(apply: Apply, value: Any) -> Spot:
    """A forward hook reads the value."""
    kept = [value]
    module = nn.Identity()
    module.register_forward_hook(lambda _module, _args, out: apply(out, kept[0]))
    return _item_of(kept, 0, module)


def descriptor(apply: Apply, value: Any) -> Spot:
    class Held:
        def __get__(self, instance: Any, owner: type) -> Any:
            return instance.__dict__["hidden"]

    class Holder:
        held = Held()

        def __call__(self, x: Any) -> Any:
            return apply(x, self.held)

    holder = Holder()
    return _attribute_of(holder, _with_attribute_set(holder, value), "hidden")


def _with_attribute_set(holder: Any, value: Any) -> Any:
    holder.hidden = value
    return holder


def argument(apply: Apply, value: Any) -> Spot:
    kept = [value]
    return _item_of(kept, 0, apply)


PLACES: dict[str, Place] = {
    "module attribute": module_attribute,
    "attribute of a module's object": child_attribute,
    "object attribute": object_attribute,
    "object of a bound method": method_of_object,
    "slot": slots_attribute,
    "property": property_,
    "data class field": data_class_field,
    "class attribute": class_attribute,
    "base class attribute": base_class_attribute,
    "list item": list_item,
    "dict value": dict_value,
    "OrderedDict value": ordered_dict_value,
    "defaultdict value": default_dict_value,
    "deque item": deque_item,
    "nested item": nested_item,
    "registry": registry,
    "closure cell": closure_cell,
    "global": module_global,
    "default argument": default_argument,
    "keyword default": keyword_default,
    "function attribute": function_attribute,
    "partial keyword": partial_keyword,
    "hook": hook,
    "descriptor": descriptor,
    "argument": argument,
    "static argument": argument,
}


# --- hosts


@dataclass(frozen=True, kw_only=True)
class Host:
    """The callable that is captured, and a way to replace one of its parts."""

    fn: Callable[..., Any]
    replace: Callable[[int, Any], None]


def _chain(x: Any, calls: Any, extra: Mapping[str, Any]) -> Any:
    for index, call in enumerate(calls):
        name = f"arg{index}"
        x = call(x, extra[name]) if name in extra else call(x)
    return x


def _given(**extra: Any) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if value is not MISSING}


MISSING = "missing"


def closure_host(calls: list[Any], results: Any) -> Host:
    def program(x: Any, arg0: Any = MISSING, arg1: Any = MISSING, arg2: Any = MISSING, arg3: Any = MISSING) -> Any:
        return results(_chain(x, calls, _given(arg0=arg0, arg1=arg1, arg2=arg2, arg3=arg3)))

    return Host(fn=program, replace=calls.__setitem__)


def module_host(calls: list[Any], results: Any) -> Host:
    class Program(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for index, call in enumerate(calls):
                setattr(self, f"part{index}", call)
            self.names = [f"part{index}" for index in range(len(calls))]

        def forward(
            self, x: Any, arg0: Any = MISSING, arg1: Any = MISSING, arg2: Any = MISSING, arg3: Any = MISSING
        ) -> Any:
            parts = [getattr(self, name) for name in self.names]
            return results(_chain(x, parts, _given(arg0=arg0, arg1=arg1, arg2=arg2, arg3=arg3)))

    program = Program()

    def put(index: int, call: Any) -> None:
        delattr(program, f"part{index}")
        setattr(program, f"part{index}", call)

    return Host(fn=program, replace=put)


def object_host(calls: list[Any], results: Any) -> Host:
    class Program:
        def __init__(self) -> None:
            self.parts = dict(enumerate(calls))

        def __call__(
            self, x: Any, arg0: Any = MISSING, arg1: Any = MISSING, arg2: Any = MISSING, arg3: Any = MISSING
        ) -> Any:
            extra = _given(arg0=arg0, arg1=arg1, arg2=arg2, arg3=arg3)
            return results(_chain(x, self.parts.values(), extra))

    program = Program()
    return Host(fn=program, replace=program.parts.__setitem__)


def method_host(calls: list[Any], results: Any) -> Host:
    class Program:
        def __init__(self) -> None:
            self.parts = tuple(calls)

        def run(
            self, x: Any, arg0: Any = MISSING, arg1: Any = MISSING, arg2: Any = MISSING, arg3: Any = MISSING
        ) -> Any:
            return results(_chain(x, self.parts, _given(arg0=arg0, arg1=arg1, arg2=arg2, arg3=arg3)))

    program = Program()

    def put(index: int, call: Any) -> None:
        program.parts = (*program.parts[:index], call, *program.parts[index + 1 :])

    return Host(fn=program.run, replace=put)


def global_host(calls: list[Any], results: Any) -> Host:
    module = types.ModuleType("program")
    source = """
def program(x, arg0=MISSING, arg1=MISSING, arg2=MISSING, arg3=MISSING):
    return results(chain(x, parts, given(arg0=arg0, arg1=arg1, arg2=arg2, arg3=arg3)))
"""
    vars(module).update(MISSING=MISSING, results=results, chain=_chain, given=_given, parts=calls)
    exec(source, module.__dict__)  # noqa: S102
    return Host(fn=module.program, replace=calls.__setitem__)


def partial_host(calls: list[Any], results: Any) -> Host:
    def program(
        x: Any, arg0: Any = MISSING, arg1: Any = MISSING, arg2: Any = MISSING, arg3: Any = MISSING, *, parts: Any
    ) -> Any:
        return results(_chain(x, parts, _given(arg0=arg0, arg1=arg1, arg2=arg2, arg3=arg3)))

    return Host(fn=functools.partial(program, parts=calls), replace=calls.__setitem__)


HOSTS: dict[str, Callable[[list[Any], Any], Host]] = {
    "closure": closure_host,
    "nn.Module": module_host,
    "object": object_host,
    "bound method": method_host,
    "function with globals": global_host,
    "partial": partial_host,
}

RESULTS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda y: y,
    "tuple": lambda y: (y, y.sum(-1)),
    "dict": lambda y: {"y": y, "rows": y.shape[0], "more": [y * 2]},
}


# --- programs


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to build a program; each part is `place: kind`."""

    host: str
    parts: tuple[str, ...]
    result: str = "tensor"
    device: str = "cpu"


@dataclass(kw_only=True)
class Part:
    """One part of a program: its value, where the value is, and what can be done to it."""

    place: str
    kind: Kind
    spot: Spot
    toolbox: Toolbox

    def edit(self, name: str, n: int) -> None:
        if name == "rebind":
            self.spot.set(self.kind.make(self.toolbox, n))
        else:
            self.kind.edits[name](self.toolbox, self.spot.get(), n)


def build_part(name: str, toolbox: Toolbox) -> Part:
    place, _, kind_name = name.partition(": ")
    kind = KINDS[kind_name]
    return Part(place=place, kind=kind, spot=PLACES[place](kind.apply, kind.make(toolbox, 0)), toolbox=toolbox)


class Program:
    """A program that was built from a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.toolboxes = [Toolbox(device=recipe.device, seed=index) for index in range(len(recipe.parts))]
        self.parts = [build_part(name, toolbox) for name, toolbox in zip(recipe.parts, self.toolboxes, strict=True)]
        self.host = HOSTS[recipe.host]([part.spot.call for part in self.parts], RESULTS[recipe.result])

    def edits(self) -> list[str]:
        """The names of all changes that this program can be given."""
        names = []
        for index, (name, part) in enumerate(zip(self.recipe.parts, self.parts, strict=True)):
            own = [*part.kind.edits]
            if part.place != "static argument":
                own = ["rebind", *own, "new part"]
            names += [f"part {index} ({name}): {edit}" for edit in own]
        return names

    def edit(self, name: str, n: int) -> None:
        """Change the program: `name` is one of `edits()`."""
        where, _, edit = name.partition("): ")
        index = int(where.split()[1])
        if edit == "new part":
            self.parts[index] = build_part(
                self.recipe.parts[index], replace(self.toolboxes[index], seed=self.toolboxes[index].seed + 10 * (n + 1))
            )
            self.parts[index].edit("rebind", n)
            self.host.replace(index, self.parts[index].spot.call)
        else:
            self.parts[index].edit(edit, n)

    def arguments(self) -> dict[str, Any]:
        """The arguments of a call, apart from the input."""
        places = {"argument", "static argument"}
        return {f"arg{i}": part.spot.get() for i, part in enumerate(self.parts) if part.place in places}

    def static(self) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i, part in enumerate(self.parts) if part.place == "static argument")

    def generators(self) -> list[Any]:
        values = [part.spot.get() for part in self.parts]
        return [value for value in values if isinstance(value, torch.Generator)]

    def state(self) -> dict[str, Any]:
        """All values that the program can reach, by path."""
        return dict(
            entry
            for index, part in enumerate(self.parts)
            for entry in reached(f"part {index} ({self.recipe.parts[index]})", part.spot.get())
        )


_LEAVES = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, enum.Enum, slice, range)
_SKIPPED_KEYS = {"__builtins__", "__doc__", "__loader__", "__spec__", "__dict__", "__weakref__", "__module__", "torch"}
# Hooks have keys that are numbered across all modules.
_SKIPPED_KEYS |= set(vars(nn.Module())) - {"training", "_parameters", "_buffers", "_modules"}


def reached(path: str, value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """The value and everything below it; torch's own functions and modules are left out."""
    seen = set() if seen is None else seen
    yield path, value
    if isinstance(value, (*_LEAVES, torch.Tensor, torch.Generator, np.ndarray)) or id(value) in seen:
        return
    if isinstance(value, types.ModuleType) and value.__name__ != "synthetic":
        return
    if isinstance(value, types.FunctionType) and value.__module__ not in {__name__, "synthetic", None}:
        return
    seen.add(id(value))
    for name, child in _children(value):
        yield from reached(f"{path}{name}", child, seen)


def _children(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: C901, PLR0912 - one branch for each kind
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", child) for key, child in list(value.items()) if key not in _SKIPPED_KEYS)
        yield "|keys", str(list(value))
    elif isinstance(value, (list, tuple, collections.deque, array.array, bytearray)):
        yield from ((f"[{index}]", child) for index, child in enumerate(list(value)))
    elif isinstance(value, (set, frozenset)):
        yield "|members", str(sorted(value))
    if isinstance(value, types.FunctionType):
        yield "|code", value.__code__.co_code
        yield "|defaults", value.__defaults__
        yield "|kwdefaults", value.__kwdefaults__
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"|{name}", cell.cell_contents
        if value.__globals__.get("__name__") == "synthetic":
            yield "|globals", value.__globals__
    elif isinstance(value, types.MethodType):
        yield "|self", value.__self__
    elif isinstance(value, functools.partial):
        yield "|keywords", value.keywords
    elif isinstance(value, type):
        if value.__module__ == __name__:
            data = {k: v for k, v in vars(value).items() if not k.startswith("__")}
            yield from ((f".{k}", v) for k, v in data.items() if isinstance(v, (*_LEAVES, list, dict, tuple)))
        return
    elif not isinstance(value, (types.BuiltinFunctionType, enum.Enum)):
        yield "|class", type(value).__qualname__
        if type(value).__module__ == __name__:
            yield "|type", type(value)
        for cls in type(value).__mro__:
            for name in getattr(cls, "__slots__", ()):
                if name not in _SKIPPED_KEYS and hasattr(value, name):
                    yield f".{name}", getattr(value, name)
    own = getattr(value, "__dict__", {})
    if isinstance(own, dict):
        yield from ((f".{k}", v) for k, v in list(own.items()) if k not in _SKIPPED_KEYS)
