"""Whatever a program reads between two calls may change: the next result is that of eager, with `verify="off"` too.

Each case is a small program in its own module: two calls, one change, two calls. A twin runs in eager.
"""

import cProfile
import textwrap
import threading
import types
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

import rocsolid as rs
from rocsolid.runtime.capture.state_snapshot import CapturedState

pytestmark = pytest.mark.torch

PRELUDE = """
import array, collections, dataclasses, enum, functools, types
from dataclasses import dataclass
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
def tensor(*numbers):
    return torch.tensor(numbers or (1.0, 2.0, 3.0, 4.0), device=device)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program as source, what changes, and which state is compared after each call."""

    name: str
    source: str
    change: str
    arguments: str = "x"
    seen: str = "None"
    static: tuple[str, ...] = ()
    generators: str = "[]"


def cases(name: str, source: str, *changes: str, **options: Any) -> Iterator[Any]:
    for change in changes or ("pass",):
        case = Case(name=name, source=textwrap.dedent(source), change=textwrap.dedent(change), **options)
        yield pytest.param(case, id=f"{name}: {change}" if changes else name)


class Built:
    """A program that was built from its source."""

    def __init__(self, case: Case, device: str) -> None:
        self.case = case
        self.module = types.ModuleType("built")
        self.module.device = device  # type: ignore[attr-defined]
        self.exec(PRELUDE + case.source)
        if isinstance(self["program"], torch.nn.Module):
            self["program"].to(device)

    def __getitem__(self, name: str) -> Any:
        return vars(self.module)[name]

    def exec(self, source: str) -> None:
        exec(source, self.module.__dict__)  # noqa: S102

    def eval(self, expression: str, **names: Any) -> Any:
        return eval(expression, self.module.__dict__, names)  # noqa: S307

    def arguments(self, x: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self.eval(f"({self.case.arguments},)", x=x)
        return found


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        facts = (got.dtype, got.shape, got.requires_grad) == (expected.dtype, expected.shape, expected.requires_grad)
        return facts and torch.allclose(got.double(), expected.double(), rtol=1e-5, equal_nan=True)
    if isinstance(expected, (list, tuple, types.GeneratorType)):
        got, expected = list(got), list(expected)
        return len(got) == len(expected) and all(same(a, b) for a, b in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        return list(got) == list(expected) and all(same(got[key], expected[key]) for key in expected)
    return bool(got == expected)


def seed_all(device: str, seed: int) -> None:
    """Like torch.manual_seed, which formats a stack trace for every backend that is not there."""
    torch.default_generator.manual_seed(seed)
    if device != "cpu":
        torch.cuda.manual_seed(seed)


def call_both(g: Any, mine: Built, twin: Built, device: str, seed: int) -> None:
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)).to(device)
    copy = x.clone()
    seed_all(device, seed)
    expected = twin["program"](*twin.arguments(x))
    drawn = torch.rand(2, device=device)
    seed_all(device, seed)
    got = g(*mine.arguments(copy))
    assert same(got, expected), f"{got} instead of {expected}"
    assert same(mine.eval(mine.case.seen), twin.eval(twin.case.seen)), "the state differs from that after eager"
    assert same(copy, x)
    assert same(torch.rand(2, device=device), drawn)


def check(target: Any, case: Case, **options: Any) -> Any:
    mine, twin = Built(case, target.device), Built(case, target.device)
    g = target.capture(
        mine["program"], static=case.static, generators=mine.eval(case.generators), **{"verify": "off", **options}
    )
    for seed in (1, 2):
        call_both(g, mine, twin, target.device, seed)
    for built in (twin, mine):
        built.exec(case.change)
    for seed in (3, 4, 5):
        call_both(g, mine, twin, target.device, seed)
    return g


# Plain values: where they can be.
PLACES = [
    *cases(
        "method with a computed name",
        """
        scale = 2.0
        class Steps:
            def step_one(self, x): return x * scale
        steps = Steps()
        def program(x): return getattr(steps, "_".join(["step", "one"]))(x)
        """,
        "scale = 3.0",
        "Steps.step_one.__code__ = (lambda self, x: x - 1).__code__",
    ),
    *cases("global", "scale = 2.0\ndef program(x): return x * scale", "scale = 3.0"),
    *cases(
        "global that another function reads",
        "scale = 2.0\ndef inner(x): return x * scale\ndef program(x): return inner(x) + 1",
        "scale = 3.0",
        "def inner(x): return x - 1",
        "inner.__code__ = (lambda x: x - 1).__code__",
        "inner = torch.tanh",
    ),
    *cases(
        "closure cell",
        """
        def make():
            scale = 2.0
            def program(x): return x * scale
            def assign(value):
                nonlocal scale
                scale = value
            return program, assign
        program, assign = make()
        """,
        "assign(3.0)",
        "program.__closure__[0].cell_contents = 3.0",
    ),
    *cases(
        "cell of an inner function",
        """
        def make():
            scale, addends = 2.0, [1.0]
            def inner(x): return x * scale + sum(addends)
            return lambda x: inner(x), inner
        program, inner = make()
        """,
        "inner.__closure__[1].cell_contents = 3.0",
        "inner.__closure__[0].cell_contents.append(3.0)",
    ),
    *cases(
        "default arguments",
        "def inner(x, scale=2.0, *, shift=1.0): return x * scale + shift\ndef program(x): return inner(x)",
        "inner.__defaults__ = (3.0,)",
        "inner.__kwdefaults__['shift'] = 3.0",
        "inner.__kwdefaults__ = {'shift': 3.0}",
    ),
    *cases(
        "own default arguments",
        "def program(x, scales=[2.0], *, shift=1.0): return x * sum(scales) + shift",
        "program.__defaults__ = ([3.0],)",
        "program.__defaults__[0].append(3.0)",
        "program.__kwdefaults__['shift'] = 3.0",
    ),
    *cases(
        "function attribute",
        "def program(x): return x * program.scale\nprogram.scale = 2.0",
        "program.scale = 3.0",
    ),
    *cases(
        "list item that is a function with an attribute",
        "def inner(x): return x * inner.scale\ninner.scale = 2.0\nsteps = [inner]\ndef program(x): return steps[0](x)",
        "inner.scale = 3.0",
        "steps[0] = torch.tanh",
        "steps.append(torch.tanh); steps.reverse()",
    ),
    *cases(
        "own code",
        "def program(x): return x * 2",
        "program.__code__ = (lambda x: x - 1).__code__",
    ),
    *cases(
        "class attribute",
        """
        class Base:
            shift = 1.0
        class Scaler(Base):
            scale = 2.0
            def __call__(self, x): return x * self.scale + self.shift
        scaler = Scaler()
        def program(x): return scaler(x)
        """,
        "Scaler.scale = 3.0",
        "Base.shift = 3.0",
        "Scaler.shift = 3.0",
        "scaler.scale = 3.0",
        "Scaler.__call__ = lambda self, x: x - self.scale",
        "scaler = Scaler(); Scaler.scale = 3.0",
    ),
    *cases(
        "class attribute that is read from the class",
        """
        class Settings:
            scale = 2.0
            names = {"a": [1.0]}
        def program(x): return x * Settings.scale + Settings.names["a"][0]
        """,
        "Settings.scale = 3.0",
        "Settings.names['a'][0] = 3.0",
        "Settings = type('Settings', (), {'scale': 4.0, 'names': {'a': [0.0]}})",
    ),
    *cases(
        "static and class methods",
        """
        class Operations:
            scale = 2.0
            @staticmethod
            def shifted(x): return x + 1
            @classmethod
            def scaled(cls, x): return x * cls.scale
        def program(x): return Operations.shifted(x) + Operations.scaled(x)
        """,
        "Operations.scale = 3.0",
        "Operations.shifted = staticmethod(lambda x: x - 1)",
        "Operations.scaled = classmethod(lambda cls, x: x / cls.scale)",
    ),
    *cases(
        "property",
        """
        class Scaler:
            def __init__(self): self._scale = 2.0
            @property
            def scale(self): return self._scale
        scaler = Scaler()
        def program(x): return x * scaler.scale
        """,
        "scaler._scale = 3.0",
        "Scaler.scale = property(lambda self: self._scale + 1)",
    ),
    *cases(
        "descriptor",
        """
        class Kept:
            def __init__(self): self.values = {"scale": 2.0}
            def __get__(self, instance, owner): return self.values["scale"]
            def __set__(self, instance, value): self.values["scale"] = value
        class Scaler:
            scale = Kept()
        scaler = Scaler()
        def program(x): return x * scaler.scale
        """,
        "scaler.scale = 3.0",
        "Scaler.__dict__['scale'].values['scale'] = 3.0",
    ),
    *cases(
        "__getattr__",
        """
        class Config:
            def __init__(self): self.__dict__["values"] = {"scale": 2.0}
            def __getattr__(self, name):
                if name not in self.values: raise AttributeError(name)
                return self.values[name]
        config = Config()
        def program(x): return x * config.scale
        """,
        "config.values['scale'] = 3.0",
        "config.scale = 3.0",
        "Config.__getattr__ = lambda self, name: 5.0",
    ),
    *cases(
        "registry",
        """
        REGISTRY = {"double": lambda x: x * 2, "negate": lambda x: -x}
        class Chooser:
            def __init__(self): self.name = "double"
            def __call__(self, x): return REGISTRY[self.name](x)
        program = Chooser()
        """,
        "program.name = 'negate'",
        "REGISTRY['double'] = torch.tanh",
        "REGISTRY = {'double': torch.exp}",
    ),
    *cases(
        "imported module",
        """
        helper = types.ModuleType("helper")
        SOURCE = "import torch\\nSCALE = {}\\nactivation = torch.relu\\ndef apply(x): return activation(x) * SCALE"
        exec(SOURCE.format(2.0), helper.__dict__)
        def program(x): return helper.apply(x)
        """,
        "helper.SCALE = 3.0",
        "helper.activation = torch.tanh",
        "helper.apply = torch.tanh",
        "exec(SOURCE.format(3.0), helper.__dict__)  # reload",
        "helper = types.SimpleNamespace(apply=torch.tanh)",
    ),
    *cases(
        "alias of torch.nn.functional",
        "def program(x): return F.relu(x)",
        "F = types.SimpleNamespace(relu=torch.tanh)",
    ),
    *cases(
        "partial",
        "def inner(x, *, scale): return x * scale\npart = functools.partial(inner, scale=2.0)\ndef program(x): return part(x)",
        "part.keywords['scale'] = 3.0",
        "part = functools.partial(inner, scale=3.0)",
        "inner.__code__ = (lambda x, *, scale: x - scale).__code__",
    ),
    *cases(
        "captured partial",
        "def inner(x, *, scales): return x * sum(scales)\nprogram = functools.partial(inner, scales=[2.0])",
        "program.keywords['scales'].append(3.0)",
        "program.keywords['scales'] = [3.0]",
    ),
    *cases(
        "bound method",
        """
        class Scaler:
            def __init__(self, scale): self.scale = scale
            def run(self, x): return self.helper(x)
            def helper(self, x): return x * self.scale
        scaler = Scaler(2.0)
        method = scaler.run
        def program(x): return method(x)
        """,
        "scaler.scale = 3.0",
        "scaler.helper = torch.tanh",
        "Scaler.helper = lambda self, x: x - self.scale",
        "method = Scaler(3.0).run",
    ),
    *cases(
        "captured bound method",
        """
        class Scaler:
            def __init__(self, scale): self.scale = scale
            def run(self, x): return self.helper(x)
            def helper(self, x): return x * self.scale
        scaler = Scaler(2.0)
        program = scaler.run
        """,
        "scaler.scale = 3.0",
        "scaler.helper = torch.tanh",
        "Scaler.helper = lambda self, x: x - self.scale",
    ),
    *cases(
        "wrapped function",
        """
        def inner(x): return x * 2
        @functools.wraps(inner)
        def program(*args): return program.__wrapped__(*args) + 1
        """,
        "program.__wrapped__ = torch.tanh",
        "inner.__code__ = (lambda x: x - 1).__code__",
    ),
]

# Kinds of values: how one is made, used and changed. HELD is the place that it is in, one of HOLDERS.
VALUES = {
    "number": ("2.0", "x * value", ["HELD = 3.0", "HELD = 2", "HELD = float('nan')", "HELD = -0.0"]),
    "integer": ("2", "sum([x] * value)", ["HELD = 3", "HELD = True"]),
    "boolean": ("True", "x * 2 if value else -x", ["HELD = False", "HELD = []"]),
    "None": ("None", "x if value is None else x * value", ["HELD = 2.0", "HELD = tensor()"]),
    "string": ("'tanh'", "getattr(torch, value)(x)", ["HELD = 'exp'"]),
    "enum": ("enum.Enum('E', 'A B').A", "x * value.value", ["HELD = type(HELD).B"]),
    "dtype": ("torch.float32", "x.to(value)", ["HELD = torch.float64"]),
    "slice": ("slice(0, 1)", "x[:, value]", ["HELD = slice(1, 3)"]),
    "tuple": ("(2.0, [1.0])", "x * value[0] + value[1][0]", ["HELD = (3.0, [1.0])", "HELD[1][0] = 3.0"]),
    "list": (
        "[2.0, 1.0]",
        "x * value[0] + sum(value[1:])",
        [
            "HELD[0] = 3.0",
            "HELD.append(3.0)",
            "HELD.pop()",
            "HELD.reverse()",
            "HELD.sort()",
            "HELD[:] = [5.0]",
            "HELD = [3.0]",
        ],
    ),
    "list of lists": ("[[2.0], [1.0]]", "x * value[0][0] + value[1][0]", ["HELD[1][0] = 3.0", "HELD.reverse()"]),
    "dict": (
        "{'a': 2.0, 'b': 1.0}",
        "functools.reduce(lambda y, n: y * 2 + n, value.values(), x)",
        [
            "HELD['a'] = 3.0",
            "HELD['c'] = 3.0",
            "del HELD['b']",
            "HELD['a'] = HELD.pop('a')",
            "HELD.clear()",
            "HELD = {'a': 9.0}",
        ],
    ),
    "dict of dicts": ("{'a': {'b': {'c': 2.0}}}", "x * value['a']['b']['c']", ["HELD['a']['b']['c'] = 3.0"]),
    "dict with number keys": ("{1: 2.0, (1, 2): 3.0}", "x * value[1] + value[1, 2]", ["HELD[1, 2] = 5.0"]),
    "OrderedDict": (
        "collections.OrderedDict(a=2.0, b=1.0)",
        "functools.reduce(lambda y, n: y * 2 + n, value.values(), x)",
        ["HELD['a'] = 3.0", "HELD.move_to_end('a')", "HELD.popitem()"],
    ),
    "defaultdict": (
        "collections.defaultdict(float, a=2.0)",
        "x * value['a'] + value.get('b', 0.0)",
        ["HELD['a'] = 3.0", "HELD['b'] += 3.0", "HELD = collections.defaultdict(int, a=5)"],
    ),
    "Counter": (
        "collections.Counter('aab')",
        "x * value['a'] + value['b']",
        ["HELD.update('b')", "HELD.subtract('a')"],
    ),
    "ChainMap": (
        "collections.ChainMap({'a': 2.0}, {'a': 5.0})",
        "x * value['a']",
        ["HELD['a'] = 3.0", "del HELD['a']", "HELD.maps.reverse()"],
    ),
    "UserDict": ("collections.UserDict(a=2.0)", "x * value['a']", ["HELD['a'] = 3.0"]),
    "set": (
        "{2.0, 1.0}",
        "x * sum(sorted(value))",
        ["HELD.add(3.0)", "HELD.discard(2.0)", "HELD.clear()", "HELD = {5.0}"],
    ),
    "frozenset": ("frozenset('ab')", "x * 2 if 'a' in value else -x", ["HELD = frozenset('b')"]),
    "deque": (
        "collections.deque([2.0, 1.0], maxlen=2)",
        "x * value[0] + value[-1]",
        [
            "HELD.append(3.0)",
            "HELD.appendleft(3.0)",
            "HELD.rotate()",
            "HELD.pop()",
            "HELD[0] = 3.0",
            "HELD.extend([3.0, 5.0])",
        ],
    ),
    "namedtuple": (
        "collections.namedtuple('P', 'scale shifts')(2.0, [1.0])",
        "x * value.scale + value.shifts[0]",
        ["HELD = HELD._replace(scale=3.0)", "HELD.shifts[0] = 3.0"],
    ),
    "array": ("array.array('d', [2.0])", "x * value[0]", ["HELD[0] = 3.0"]),
    "bytearray": ("bytearray([2])", "x * value[0]", ["HELD[0] = 3"]),
    "numpy array": (
        "np.array([2.0, 1.0])",
        "x * float(value[0]) + float(value[1])",
        ["HELD[0] = 3.0", "HELD += 1.0", "HELD[:] = 5.0", "HELD = np.array([3.0, 1.0])"],
    ),
    "numpy number": ("np.float64(2.0)", "x * float(value)", ["HELD = np.float64(3.0)"]),
    "namespace": (
        "types.SimpleNamespace(scale=2.0)",
        "x * value.scale",
        ["HELD.scale = 3.0", "HELD = type(HELD)(scale=5.0)"],
    ),
    "mapping proxy": (
        "types.MappingProxyType(behind := {'a': 2.0})",
        "x * value['a']",
        ["behind['a'] = 3.0"],
    ),
    "object": (
        "Box(2.0)",
        "x * value.scale + getattr(value, 'extra', 1.0)",
        [
            "HELD.scale = 3.0",
            "HELD = Box(3.0)",
            "HELD.extra = 3.0",
            "HELD.__class__ = OtherBox",
            "HELD = OtherBox(2.0)",
            "Box.extra = 3.0",
            "Box.scale = property(lambda self: 7.0)",
        ],
    ),
    "object in an object": (
        "Box(Box(2.0))",
        "x * value.scale.scale",
        ["HELD.scale.scale = 3.0", "HELD.scale = Box(3.0)", "HELD = Box(Box(3.0))"],
    ),
    "list of objects": (
        "[Box(2.0), Box(1.0)]",
        "functools.reduce(lambda y, box: y * 2 + box.scale, value, x)",
        ["HELD[1].scale = 3.0", "HELD.reverse()", "HELD.append(Box(3.0))", "HELD[0] = Box(3.0)", "del HELD[0]"],
    ),
    "slots": ("Slots(2.0)", "x * value.scale", ["HELD.scale = 3.0", "HELD = Slots(3.0)"]),
    "inherited slots": ("DerivedSlots(2.0)", "x * value.scale", ["HELD.scale = 3.0"]),
    "data class": (
        "Data(2.0, [1.0])",
        "x * value.scale + value.shifts[0]",
        ["HELD.scale = 3.0", "HELD.shifts[0] = 3.0", "HELD = dataclasses.replace(HELD, scale=3.0)"],
    ),
    "frozen data class": (
        "FrozenData(2.0, [1.0])",
        "x * value.scale + value.shifts[0]",
        [
            "HELD = dataclasses.replace(HELD, scale=3.0)",
            "HELD.shifts.insert(0, 3.0)",
            "object.__setattr__(HELD, 'scale', 3.0)",
        ],
    ),
    "callable object": (
        "CallableBox(2.0)",
        "value(x)",
        [
            "HELD.scale = 3.0",
            "HELD = CallableBox(3.0)",
            "CallableBox.__call__ = lambda self, x: x - self.scale",
            "CallableBox.helper = lambda self, x: x - self.scale",
            "HELD.helper = torch.tanh",
        ],
    ),
    "function": (
        "doubled",
        "value(x)",
        ["HELD = torch.tanh", "HELD = lambda x: x - 1", "doubled.__code__ = (lambda x: x - 1).__code__"],
    ),
    "lambda": ("(lambda x: x * 2)", "value(x)", ["HELD = lambda x: x * 3"]),
    "built-in function": ("torch.tanh", "value(x)", ["HELD = torch.exp"]),
    "class": (
        "Operations",
        "value.applied(x)",
        ["Operations.scale = 3.0", "Operations.applied = staticmethod(torch.tanh)", "HELD = OtherOperations"],
    ),
    "class that is called": ("Box", "x * value(2.0).scale", ["HELD = OtherBox", "Box.__init__ = OtherBox.__init__"]),
    "bound method": ("Box(2.0).scaled", "value(x)", ["HELD = Box(3.0).scaled", "HELD.__self__.scale = 3.0"]),
    "partial": (
        "functools.partial(torch.mul, torch.ones((), device=device) * 2)",
        "value(x)",
        ["HELD = functools.partial(torch.add, torch.ones((), device=device))", "HELD.args[0].fill_(3.0)"],
    ),
    "tensor": (
        "tensor()",
        "x * value",
        [
            "HELD.mul_(2)",
            "HELD = HELD * 2",
            "HELD.data = HELD.data * 2",
            "HELD.data = HELD.data.clone(); HELD.mul_(2)",
            "HELD = HELD.double()",
            "HELD.requires_grad_()",
        ],
    ),
    "expanded tensor": ("tensor(2.0)", "x + value", ["HELD = tensor()", "HELD = HELD[0] * 3"]),
    "CPU scalar tensor": ("torch.tensor(2.0)", "x * value", ["HELD.fill_(3.0)", "HELD = torch.tensor(3.0)"]),
    "list of tensors": (
        "[tensor(), tensor() + 1]",
        "x * value[0] + sum(value[1:])",
        ["HELD[0] = tensor() * 3", "HELD.append(tensor())", "HELD.reverse()", "HELD[1].mul_(2)", "HELD.pop()"],
    ),
    "dict of tensors": (
        "{'a': tensor(), 'b': tensor() + 1}",
        "x * value['a'] + value['b']",
        ["HELD['a'] = tensor() * 3", "HELD.update(a=HELD['b'], b=HELD['a'])", "HELD['b'].mul_(2)"],
    ),
    "object with a tensor": (
        "Box(tensor())",
        "x * value.scale",
        ["HELD.scale = tensor() * 3", "HELD = Box(tensor() * 3)"],
    ),
    "module": (
        "nn.Linear(4, 4).to(device)",
        "value(x)",
        [
            "torch.nn.init.ones_(HELD.weight)",
            "torch.nn.init.ones_(HELD.weight); HELD.weight.data = HELD.weight.data.clone()",
            "HELD.weight = nn.Parameter(torch.ones(4, 4, device=device))",
            "HELD.bias = None",
            "HELD.load_state_dict({'weight': torch.ones(4, 4), 'bias': torch.ones(4)})",
            "HELD.load_state_dict({'weight': tensor() * torch.ones(4, 4, device=device), 'bias': tensor()}, assign=True)",
            "HELD.register_forward_hook(lambda module, args, out: out * 3)",
            "HELD.register_forward_pre_hook(lambda module, args: (args[0] + 3,))",
            "HELD.forward = torch.tanh",
            "HELD = nn.Tanh()",
            "HELD.requires_grad_(False)",
            "nn.utils.parametrize.register_parametrization(HELD, 'weight', nn.Tanh())",
        ],
    ),
    "module without parameters": (
        "nn.LeakyReLU(0.5)",
        "value(x)",
        ["HELD.negative_slope = 0.1", "HELD = nn.Tanh()", "HELD.__class__ = nn.Sigmoid", "HELD.inplace = True"],
    ),
    "hook": (
        "hooked()",
        "value(x)",
        [
            "HELD.handle.remove()",
            "hooks['scale'] = 3.0",
            "HELD._forward_hooks[HELD.handle.id] = lambda m, a, out: out - 1",
        ],
    ),
    "dropout": ("nn.Dropout(0.5)", "value(x)", ["HELD.eval()", "HELD.p = 0.2"]),
    "module tree": (
        "Tree()",
        "value(x)",
        [
            "HELD.leaf.settings['scale'] = 3.0",
            "HELD.leaf.settings = {'scale': 3.0}",
            "HELD.leaf = Leaf(3.0)",
            "HELD.leaf = nn.Identity()",
            "HELD.depth = 3",
            "HELD.eval()",
            "HELD.leaf.eval()",
            "HELD.leaf.offset = HELD.leaf.offset + 1",
            "HELD.leaf.offset.add_(1)",
            "HELD.double(); HELD.float()",
            "Leaf.forward = lambda self, x: x - 1",
            "Leaf.helper = lambda self, x: x - 1",
            "Leaf.gain = 3.0",
            "HELD.leaf.gain = 3.0",
            "HELD.leaf.__class__ = OtherLeaf",
        ],
    ),
    "ModuleList": (
        "nn.ModuleList([nn.Tanh(), nn.ReLU()])",
        "functools.reduce(lambda y, m: m(y), value, x)",
        ["HELD[0] = nn.Sigmoid()", "HELD.append(nn.Sigmoid())", "del HELD[0]", "HELD.insert(0, nn.Softplus())"],
    ),
    "ModuleDict": (
        "nn.ModuleDict({'a': nn.Tanh(), 'b': nn.ReLU()})",
        "functools.reduce(lambda y, m: m(y) + 1, value.values(), x)",
        ["HELD['a'] = nn.Sigmoid()", "HELD['c'] = nn.Sigmoid()", "del HELD['a']"],
    ),
    "ParameterList": (
        "nn.ParameterList([tensor(), tensor() + 1])",
        "x * value[0] + sum(value)",
        ["HELD[0] = nn.Parameter(tensor() * 3)", "HELD.append(nn.Parameter(tensor()))", "nn.init.ones_(HELD[1])"],
    ),
    "Sequential": (
        "nn.Sequential(nn.Tanh(), nn.LeakyReLU())",
        "value(x)",
        ["HELD[0] = nn.Sigmoid()", "HELD.append(nn.Sigmoid())", "HELD[1].negative_slope = 0.5", "del HELD[1]"],
    ),
}

CLASSES = """
class Box:
    def __init__(self, scale): self.scale = scale
    def scaled(self, x): return x * self.scale
class OtherBox(Box):
    extra = 9.0
    def __init__(self, scale): self.scale = scale + 1.0
class Slots:
    __slots__ = ("scale",)
    def __init__(self, scale): self.scale = scale
class DerivedSlots(Slots):
    __slots__ = ()
@dataclass
class Data:
    scale: float
    shifts: list
@dataclass(frozen=True)
class FrozenData:
    scale: float
    shifts: list
class CallableBox(Box):
    def __call__(self, x): return self.helper(x)
    def helper(self, x): return x * self.scale
class Operations:
    scale = 2.0
    @staticmethod
    def applied(x): return x * Operations.scale
class OtherOperations:
    applied = torch.tanh
def doubled(x): return x * 2
hooks = {"scale": 2.0}
def hooked():
    module = nn.Tanh()
    module.handle = module.register_forward_hook(lambda module, args, out: out * hooks["scale"])
    return module
class Leaf(nn.Module):
    gain = 1.0
    def __init__(self, scale=2.0):
        super().__init__()
        self.settings = {"scale": scale}
        self.register_buffer("offset", tensor())
    def forward(self, x): return self.helper(x) * (2.0 if self.training else 1.0)
    def helper(self, x): return x * self.settings["scale"] * self.gain + self.offset
class OtherLeaf(Leaf):
    def forward(self, x): return x - 1
class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf, self.depth = Leaf(), 1
    def forward(self, x):
        for _ in range(self.depth):
            x = self.leaf(x)
        return x * (3.0 if self.training else 1.0)
torch.default_generator.manual_seed(0)
"""

HOLDERS = {
    "of an object": (
        """
class Holder:
    def __call__(self, x): return apply(x, self.held)
program = Holder()
program.held = {value}
""",
        "program.held",
    ),
    "of a module": (
        """
class Holder(nn.Module):
    def forward(self, x): return apply(x, self.held)
program = Holder()
program.held = {value}
""",
        "program.held",
    ),
    "of a module's plain object": (
        """
class Config: pass
class Holder(nn.Module):
    def forward(self, x): return apply(x, self.config.held)
program = Holder()
program.config = Config()
program.config.held = {value}
""",
        "program.config.held",
    ),
    "in globals": ("held = {value}\ndef program(x): return apply(x, held)", "held"),
    "in a dict of a list": (
        "kept = [dict(held={value})]\ndef program(x): return apply(x, kept[0]['held'])",
        "kept[0]['held']",
    ),
    "in a slot": (
        """
class Holder:
    __slots__ = ("held",)
    def __call__(self, x): return apply(x, self.held)
holder = Holder()
holder.held = {value}
def program(x): return holder(x)
""",
        "holder.held",
    ),
}


def held_values() -> Iterator[Any]:
    for name, (value, use, changes) in VALUES.items():
        for place, (holder, path) in HOLDERS.items():
            source = CLASSES + f"def apply(x, value): return {use}\n" + holder.replace("{value}", value)
            yield from cases(f"{name} {place}", source, *[change.replace("HELD", path) for change in changes])


# Programs that change Python objects or tensors themselves.
EFFECTS = [
    *cases(
        "log", "log = []\ndef program(x):\n    log.append('called')\n    return x * len(log)", "log.clear()", seen="log"
    ),
    *cases(
        "log of numbers that nothing reads", "log = []\ndef program(x):\n    log.append(1)\n    return x", seen="log"
    ),
    *cases("global counter", "n = 0\ndef program(x):\n    global n\n    n += 1\n    return x * 2", "n = 10", seen="n"),
    *cases(
        "nonlocal counter",
        """
        def make():
            n = 0
            def program(x):
                nonlocal n
                n += 1
                return x * 2
            return program
        program = make()
        """,
        seen="program.__closure__[0].cell_contents",
    ),
    *cases(
        "function attribute",
        "def program(x):\n    program.n += 1\n    return x * 2\nprogram.n = 0",
        "program.n = 10",
        seen="program.n",
    ),
    *cases(
        "default argument",
        "def program(x, log=[]):\n    log.append(1)\n    return x * 2",
        seen="program.__defaults__[0]",
    ),
    *cases(
        "class counter",
        "class Counter:\n    n = 0\n    def __call__(self, x):\n        Counter.n += 1\n        return x * 2\nprogram = Counter()",
        seen="Counter.n",
    ),
    *cases(
        "counter in a module",
        """
        class Counting(nn.Module):
            n = 0
            def forward(self, x):
                self.n += 1
                return x * self.n
        program = Counting()
        """,
        "program.n = 10",
        seen="program.n, 'n' in vars(program)",
    ),
    *cases(
        "counter of an object in a module",
        """
        class Stats: pass
        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.stats = Stats()
                self.stats.n = 0
            def forward(self, x):
                self.stats.n += 1
                return x * 2
        program = Counting()
        """,
        "program.stats = Stats(); program.stats.n = 10",
        seen="program.stats.n",
    ),
    *cases(
        "slot",
        "class S:\n    __slots__ = ('n',)\ns = S()\ns.n = 0\ndef program(x):\n    s.n += 1\n    return x * 2",
        seen="s.n",
    ),
    *cases(
        "data class field",
        "@dataclass\nclass S:\n    n: int = 0\ns = S()\ndef program(x):\n    s.n += 1\n    return x * 2",
        seen="s.n",
    ),
    *cases(
        "dict insert",
        "d = {}\ndef program(x):\n    d[len(d)] = 1\n    return x * 2",
        "d.clear()",
        seen="d",
    ),
    *cases(
        "defaultdict count",
        "d = collections.defaultdict(int)\ndef program(x):\n    d[x.shape] += 1\n    return x * 2",
        seen="d",
    ),
    *cases("set add", "s = set()\ndef program(x):\n    s.add(len(s))\n    return x * 2", seen="sorted(s)"),
    *cases(
        "deque append",
        "d = collections.deque(maxlen=2)\ndef program(x):\n    d.append((d[-1] if d else 0) + 1)\n    return x * 2",
        "d.rotate()",
        seen="d, d.maxlen",
    ),
    *cases("pop", "todo = [1, 2, 3, 4, 5, 6]\ndef program(x): return x * todo.pop()", "todo.append(9)", seen="todo"),
    *cases(
        "popleft",
        "todo = collections.deque([1, 2, 3, 4, 5, 6])\ndef program(x): return x * todo.popleft()",
        seen="todo",
    ),
    *cases(
        "rotate",
        "ring = collections.deque([1, 2, 3])\ndef program(x):\n    ring.rotate()\n    return x * ring[0]",
        seen="ring",
    ),
    *cases(
        "numpy array",
        "n = np.zeros(1)\ndef program(x):\n    n[0] += 1\n    return x * 2",
        "n[0] = 9",
        seen="n.tolist()",
    ),
    *cases(
        "rebound tensor",
        """
        class Keeper(nn.Module):
            last = None
            def forward(self, x):
                y = x if self.last is None else x + self.last
                self.last = x * 2
                return y
        program = Keeper()
        """,
        "program.last = None",
        "program.last = tensor()",
        seen="program.last",
    ),
    *cases(
        "rebound tensor of a plain object",
        "class S: pass\ns = S()\ndef program(x):\n    s.last = x * 2\n    return x + 1",
        seen="s.last",
    ),
    *cases(
        "rebound buffer",
        """
        class Keeper(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(4))
            def forward(self, x):
                self.total = self.total + x.sum(0)
                return x + self.total
        program = Keeper()
        """,
        "program.total = torch.ones(4, device=device)",
        "program.total.zero_()",
        seen="program.total",
    ),
    *cases("kept results", "kept = []\ndef program(x):\n    kept.append(x * 2)\n    return x + 1", seen="kept"),
    *cases(
        "toggled flag",
        "class S:\n    flag = False\ns = S()\ndef program(x):\n    s.flag = not s.flag\n    return x * 2 if s.flag else -x",
        "s.flag = True",
        seen="s.flag",
    ),
    *cases(
        "buffer in place",
        """
        class Keeper(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(4))
            def forward(self, x):
                self.total.add_(x.sum(0))
                return x + self.total
        program = Keeper()
        """,
        "program.total.zero_()",
        "program.total = torch.ones(4, device=device)",
        seen="program.total",
    ),
    *cases(
        "tensors of a list in place",
        "kept = [tensor(), tensor()]\ndef program(x):\n    kept[0].add_(x[0])\n    return x + kept[0] + kept[1]",
        "kept[0] = tensor()",
        "kept.reverse()",
        "kept[0].zero_()",
        seen="kept",
    ),
    *cases(
        "tensor of an object's object in place",
        "class S: pass\na = S()\na.b = S()\na.b.t = tensor()\ndef program(x):\n    a.b.t.add_(x[0])\n    return x + a.b.t",
        "a.b.t = tensor() * 3",
        "a.b = S(); a.b.t = tensor() * 3",
        seen="a.b.t",
    ),
    *cases(
        "tensor of a class in place",
        "class S:\n    t = tensor()\ndef program(x):\n    S.t.add_(x[0])\n    return x + S.t",
        "S.t = tensor() * 3",
        seen="S.t",
    ),
    *cases(
        "tensor of a slot in place",
        "class S:\n    __slots__ = ('t',)\ns = S()\ns.t = tensor()\ndef program(x):\n    s.t.add_(x[0])\n    return x + s.t",
        "s.t = tensor() * 3",
        seen="s.t",
    ),
    *cases(
        "lazy table",
        """
        class Lazy(nn.Module):
            table = None
            def forward(self, x):
                if self.table is None:
                    self.table = torch.arange(4.0, device=x.device)
                return x + self.table
        program = Lazy()
        """,
        "program.table = None",
        "program.table = tensor()",
        "del program.table",
        seen="program.table",
    ),
    *cases(
        "lazy table in a dict",
        """
        tables = {}
        def program(x):
            if x.shape not in tables:
                tables[x.shape] = torch.arange(4.0, device=x.device)
            return x + tables[x.shape]
        """,
        "tables.clear()",
        "tables = {}",
        seen="tables",
    ),
    *cases(
        "lru_cache",
        "n = 2.0\n@functools.lru_cache\ndef scale(k): return n * k\ndef program(x): return x * scale(2)",
        "scale.cache_clear(); n = 3.0",
    ),
    *cases(
        "BatchNorm in a plain object",
        "class S: pass\ns = S()\ns.norm = nn.BatchNorm1d(4).to(device)\ndef program(x): return s.norm(x)",
        "s.norm.eval()",
        "s.norm.momentum = 0.5",
        "s.norm.reset_running_stats()",
        "s.norm = nn.BatchNorm1d(4).to(device)",
        seen="list(s.norm.state_dict().values())",
    ),
    *cases("written input", "def program(x):\n    x.mul_(2)\n    return x + 1"),
    *cases(
        "own generator",
        "g = torch.Generator(device).manual_seed(1)\ndef program(x): return x + torch.rand(4, generator=g, device=device)",
        "g.manual_seed(5)",
        "g = torch.Generator(device).manual_seed(5)",
        seen="g.get_state().cpu()",
        generators="[g]",
    ),
    *cases(
        "own generator that is not listed",
        "g = torch.Generator(device).manual_seed(1)\ndef program(x): return x + torch.rand(4, generator=g, device=device)",
        "g.manual_seed(5)",
        seen="g.get_state().cpu()",
    ),
]

# A call advances an iterator, and nothing can move it back: such a program must not run twice for one call.
ITERATORS = [
    *cases(
        "iterator",
        "def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\nit = numbers()\ndef program(x): return x * next(it)",
        "it = numbers()",
    ),
    *cases("list iterator", "it = iter([1, 2, 3, 4, 5, 6])\ndef program(x): return x * next(it)"),
]

CACHE = """
class Cache:
    def __init__(self):
        self.keys = torch.zeros(8, 4, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.scale = 2.0
def program(x, cache):
    cache.keys.index_copy_(0, cache.position, x[:1])
    cache.position.add_(1)
    return x * cache.scale + cache.keys.sum(0)
cache = Cache()
"""
INTEGER_CACHE = """
class Cache:
    def __init__(self):
        self.keys, self.position = torch.zeros(8, 4, device=device), 0
def program(x, cache):
    cache.keys[cache.position] = x[0]
    cache.position += 1
    return x + cache.keys[:cache.position].sum(0)
cache = Cache()
"""

ARGUMENTS = [
    *(
        param
        for static in ((), ("arg",))
        for name, source, changes in (
            (
                "list",
                "arg = [2.0, tensor()]\ndef program(x, arg): return x * arg[0] + arg[1]",
                ("arg[0] = 3.0", "arg[1] = tensor() * 3", "arg[1].mul_(2)"),
            ),
            (
                "dict",
                "arg = {'a': 2.0, 'b': tensor()}\ndef program(x, arg): return x * arg['a'] + arg['b']",
                ("arg['a'] = 3.0", "arg['b'] = tensor() * 3", "arg['b'].mul_(2)"),
            ),
            ("longer list", "arg = [tensor()]\ndef program(x, arg): return x + sum(arg)", ("arg.append(tensor())",)),
            (
                "data class",
                "@dataclass\nclass Batch:\n    mask: object\n    scale: float\narg = Batch(tensor(), 2.0)\ndef program(x, arg): return x * arg.scale + arg.mask",
                ("arg.scale = 3.0", "arg.mask = tensor() * 3", "arg.mask.mul_(2)"),
            ),
            (
                "object",
                CLASSES + "arg = Box(2.0)\ndef program(x, arg): return arg.scaled(x) + getattr(arg, 'extra', 1.0)",
                ("arg.scale = 3.0", "arg.__class__ = OtherBox", "Box.scaled = lambda self, x: x - 1"),
            ),
            (
                "object with a tensor",
                CLASSES + "arg = Box(tensor())\ndef program(x, arg): return x * arg.scale",
                ("arg.scale = tensor() * 3", "arg.scale.mul_(2)"),
            ),
            (
                "tensor",
                "arg = tensor()\ndef program(x, arg): return x * arg",
                ("arg.mul_(2)", "arg.data = arg.data * 2"),
            ),
            (
                "module",
                "torch.manual_seed(0)\narg = nn.Linear(4, 4).to(device)\ndef program(x, arg): return arg(x)",
                (
                    "nn.init.ones_(arg.weight)",
                    "arg.weight = nn.Parameter(torch.ones(4, 4, device=device))",
                    "arg.weight.data = torch.ones(4, 4, device=device)",
                    "arg.bias = None",
                    "arg.forward = torch.tanh",
                ),
            ),
            (
                "function",
                "def arg(x): return x * 2\ndef program(x, arg): return arg(x)",
                ("arg.__code__ = (lambda x: x - 1).__code__",),
            ),
            (
                "method",
                CLASSES + "box = Box(2.0)\narg = box.scaled\ndef program(x, arg): return arg(x)",
                ("box.scale = 3.0",),
            ),
            (
                "function with a cell",
                "def make(n): return lambda x: x * n\narg = make(2.0)\ndef program(x, arg): return arg(x)",
                ("arg.__closure__[0].cell_contents = 3.0",),
            ),
            (
                "deque",
                "arg = collections.deque([2.0], maxlen=1)\ndef program(x, arg): return x * arg[0]",
                ("arg.append(3.0)",),
            ),
            ("set", "arg = {2.0}\ndef program(x, arg): return x * sum(arg)", ("arg.add(3.0)",)),
            ("numpy array", "arg = np.array([2.0])\ndef program(x, arg): return x * float(arg[0])", ("arg[0] = 3.0",)),
        )
        for param in cases(f"{'static ' if static else ''}{name}", source, *changes, arguments="x, arg", static=static)
    ),
    *cases(
        "cache", CACHE, "cache.scale = 3.0", "cache = Cache()", arguments="x, cache", seen="list(vars(cache).values())"
    ),
    *cases(
        "static cache",
        CACHE,
        "cache.scale = 3.0",
        "cache.position.zero_()",
        "cache.keys = torch.ones(8, 4, device=device)",
        "cache.keys.zero_()",
        arguments="x, cache",
        static=("cache",),
        seen="list(vars(cache).values())",
    ),
    *cases(
        "static cache with an integer position",
        INTEGER_CACHE,
        "cache.position = 0",
        arguments="x, cache",
        static=("cache",),
        seen="list(vars(cache).values())",
    ),
    *cases(
        "log",
        "log = []\ndef program(x, log):\n    log.append(1)\n    return x * 2",
        arguments="x, log",
        seen="log",
    ),
    *cases(
        "static log",
        "log = []\ndef program(x, log):\n    log.append(1)\n    return x * 2",
        arguments="x, log",
        static=("log",),
        seen="log",
    ),
    *cases(
        "dict that gets the result",
        "out = {}\ndef program(x, out):\n    out['y'] = x * 2\n    return x",
        arguments="x, out",
        seen="out",
    ),
    *cases(
        "counter in a data class",
        "@dataclass\nclass S:\n    n: int = 0\ns = S()\ndef program(x, s):\n    s.n += 1\n    return x * 2",
        arguments="x, s",
        seen="s.n",
    ),
    *cases(
        "counter in a cell",
        """
        def make():
            n = 0
            def counted(x):
                nonlocal n
                n += 1
                return x * n
            return counted
        step = make()
        def program(x, step): return step(x)
        """,
        arguments="x, step",
        seen="step.__closure__[0].cell_contents",
    ),
]


@pytest.mark.parametrize("case", PLACES)
def test_a_value_that_changes_where_it_is_read(target: Any, case: Case) -> None:
    check(target, case)


@pytest.mark.parametrize("case", list(held_values()))
def test_a_value_that_is_replaced_or_edited(target: Any, case: Case) -> None:
    check(target, case)


@pytest.mark.parametrize("case", ITERATORS)
def test_an_iterator_advances_once_per_call(target: Any, case: Case) -> None:
    check(target, case)


@pytest.mark.parametrize("case", EFFECTS)
def test_state_that_the_program_changes(target: Any, case: Case) -> None:
    check(target, case)


@pytest.mark.parametrize("case", ARGUMENTS)
def test_an_argument_that_changes(target: Any, case: Case) -> None:
    check(target, case)


UNCHANGED = [
    *cases("number", "scale = 2.0\ndef program(x): return x * scale", "scale = float('2')"),
    *cases(
        "equal string", "name = 'tanh'\ndef program(x): return getattr(torch, name)(x)", "name = ''.join(['ta', 'nh'])"
    ),
    *cases("weight in place", "w = tensor()\ndef program(x): return x * w", "w.mul_(2)"),
    *cases("global that is not read", "w = tensor()\nother = 1\ndef program(x): return x * w", "other = 2"),
    *cases(
        "function that is not executed",
        """
        rare_scale = 3.0
        def rare(x): return x * rare_scale
        is_rare = False
        def program(x): return rare(x) if is_rare else x * 2
        """,
        "rare_scale = 4.0",
    ),
]


@pytest.mark.parametrize("case", UNCHANGED)
def test_what_does_not_matter_keeps_the_graph(target: Any, case: Case) -> None:
    g = check(target, case)
    assert g.report().replays == 4
    assert not g.report().invalidated


def test_globals_that_change_between_calls_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script whose loop is at top level: each step assigns globals that the function does not read."""
    built = Built(Case(name="", source="w = tensor()\ndef program(x): return x * w", change=""), "cpu")
    g = rs.capture(built["program"], backend="record", verify="off")
    x = torch.ones(4)
    g(x)
    details: list[Any] = []
    monkeypatch.setattr(CapturedState, "changes", details.append)
    for step in range(3):
        vars(built.module)["step"] = step
        g(x)

    assert g.report().replays == 3
    assert not details


@pytest.mark.parametrize("how", ["profiler", "thread pool"])
def test_where_executed_functions_are_not_known_all_are_watched(how: str) -> None:
    source = """
    from concurrent.futures import ThreadPoolExecutor
    pool = ThreadPoolExecutor(1)
    scale = 2.0
    def scaled(x): return x * scale
    def program(x): return x + pool.submit(scaled, x).result() if pooled else scaled(x)
    """
    built = Built(Case(name="", source=f"pooled = {how == 'thread pool'}" + textwrap.dedent(source), change=""), "cpu")
    g = rs.capture(built["program"], backend="record", verify="off")
    x = torch.ones(4)
    built["pool"].submit(int).result()  # starts the thread
    profiler = cProfile.Profile()
    with profiler if how == "profiler" else nullcontext():
        before = g(x)
    g(x)
    vars(built.module)["scale"] = 3.0

    assert torch.equal(g(x), before + 1)


@pytest.mark.parametrize("change", ["values['a'] = 3.0", "values.move_to_end('a')", "empty['a'] = 1.0"])
def test_methods_of_a_mapping_are_not_called(change: str) -> None:
    """As those of transformers' automatic mappings, which import every model."""

    class Lazy(OrderedDict[str, float]):
        def _fail(self, *_: Any) -> Any:
            msg = "a method of the mapping was called"
            raise AssertionError(msg)

        __bool__ = __len__ = __iter__ = keys = values = items = get = _fail

    values, empty = Lazy({"a": 2.0, "b": 1.0}), Lazy()

    def function(x: Any) -> Any:
        scale = 2.0 if next(OrderedDict.__iter__(values)) == "a" else 3.0
        offset = 1.0 if OrderedDict.__contains__(empty, "a") else 0.0
        return x * scale + OrderedDict.__getitem__(values, "a") + offset

    fast = rs.capture(function, backend="record", verify="off")
    for number in range(6):
        if number == 3:
            exec(change, {"values": values, "empty": empty})  # noqa: S102 - of this test
        x = torch.full((2,), float(number))
        assert torch.equal(fast(x), function(x))
    assert fast.report().replays >= 3, fast.report()


def test_an_object_that_answers_for_the_class_it_wraps() -> None:
    """As the result of `rs.optimize` does, and mocks and proxies do."""
    wrapped = property(lambda _: Case)
    proxy = type("Proxy", (), {"__class__": wrapped, "scale": 2.0})()
    g = rs.capture(lambda x: x * proxy.scale, backend="record")
    x = torch.ones(4)

    assert [g(x).tolist(), g(x).tolist()] == [[2.0] * 4] * 2
    assert g.report().refusals == ()
    assert g.report().replays == 1


MODES: dict[str, Any] = {
    "grad mode": lambda _device: torch.enable_grad(),
    "inference mode": lambda _device: torch.inference_mode(),
    "autocast": lambda device: torch.autocast(device, torch.bfloat16),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_call_in_another_mode(target: Any, mode: str) -> None:
    module = target.module(torch.nn.Linear(4, 4))
    g, x = target.capture(module, verify="off"), target.randn(2, 4)
    for _ in range(2):
        g(x)
    with MODES[mode](target.device):
        for _ in range(2):
            assert same(g(x), module(x))
    assert same(g(x), module(x))


def test_a_call_with_another_default_dtype(target: Any) -> None:
    def program(x: Any) -> Any:
        return x + torch.full((1,), 2.0, device=x.device)

    g, x = target.capture(program, verify="off"), target.randn(2, 4)
    for _ in range(2):
        g(x)
    torch.set_default_dtype(torch.float64)
    try:
        assert same(g(x), program(x))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_change_in_another_thread(target: Any) -> None:
    settings = types.SimpleNamespace(scale=2.0)

    def program(x: Any) -> Any:
        return x * settings.scale

    g, x = target.capture(program, verify="off"), target.randn(2, 4)
    results: list[Any] = []

    def change_and_call() -> None:
        settings.scale = 3.0
        with torch.no_grad():
            results.append(g(x))

    for _ in range(2):
        g(x)
    thread = threading.Thread(target=change_and_call)
    thread.start()
    thread.join()
    assert same(results, [x * 3.0])
    assert same(g(x), x * 3.0)


def test_earlier_results_are_kept(target: Any) -> None:
    g = target.capture(lambda x: (x * 2, [x + 1]), verify="off")
    inputs = [target.randn(2, 4) for _ in range(4)]
    results = [g(x) for x in inputs]
    assert all(same(result, (x * 2, [x + 1])) for result, x in zip(results, inputs, strict=True))
