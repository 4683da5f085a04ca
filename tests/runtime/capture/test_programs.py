"""Small programs whose Python-side state changes between the calls, or in them: every result must be that of eager.

A program is built twice. One copy is captured, the other one runs in eager, and the same changes are made to both.
The real programs that these were reduced from are in `tests/programs`.
"""

import functools
import itertools
import os
import random
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

pytestmark = pytest.mark.torch


@pytest.fixture(params=["no_grad", "inference_mode"])
def mode(request: pytest.FixtureRequest) -> Any:
    return getattr(torch, request.param)


class Program(NamedTuple):
    """What is called, what is changed between the calls, and state that must be equal after each call."""

    fn: Callable[[Any], Any]
    changes: tuple[Callable[[], Any], ...] = ()
    state: Callable[[], Any] = lambda: None


PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(build: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[build.__name__] = build
    return build


class Scale:
    """A plain object that does a part of the work."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return x * self.by


class Shift(Scale):
    """Another class with the same attribute."""

    def __call__(self, x: Any) -> Any:
        return x + self.by


class Slotted:
    """A plain object without a `__dict__`."""

    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return x * self.by


class TensorHolder:
    """A plain object that makes its tensor in the first call."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.offset: Any = None

    def __call__(self, x: Any) -> Any:
        if self.offset is None or self.offset.device != x.device:
            self.offset = torch.full((4,), self.value, device=x.device)
        return x + self.offset


class WithProcessor(nn.Module):  # type: ignore[misc]
    """The shape of an attention layer of diffusers: a plain object in an attribute does a part of the work."""

    def __init__(self, proc: Any) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.proc = proc

    def forward(self, x: Any) -> Any:
        return self.proc(self.lin(x))


# Attributes that are replaced or changed


@program
def object_attribute_replaced_by_another_class() -> Program:
    m = WithProcessor(Scale(2.0))
    return Program(m, (lambda: setattr(m, "proc", Shift(2.0)), lambda: setattr(m, "proc", Scale(2.0))))


@program
def object_attribute_replaced_by_the_same_class() -> Program:
    m = WithProcessor(Scale(2.0))
    return Program(m, (lambda: setattr(m, "proc", Scale(3.0)),))


@program
def object_attribute_changed_inside() -> Program:
    m = WithProcessor(Scale(2.0))
    return Program(m, (lambda: setattr(m.proc, "by", 3.0),))


@program
def object_with_slots_changed_inside() -> Program:
    m = WithProcessor(Slotted(2.0))
    return Program(m, (lambda: setattr(m.proc, "by", 3.0),))


@program
def class_of_an_object_changed() -> Program:
    m = WithProcessor(Scale(2.0))
    return Program(m, (lambda: setattr(m.proc, "__class__", Shift),))


@program
def method_of_the_class_patched() -> Program:
    kind = type("Patched", (Scale,), {})
    m = WithProcessor(kind(2.0))
    return Program(m, (lambda: setattr(kind, "__call__", lambda self, x: x - self.by),))


@program
def class_attribute_changed() -> Program:
    class Half(nn.Module):  # type: ignore[misc]
        factor = 0.5

        def forward(self, x: Any) -> Any:
            return x * self.factor

    return Program(Half(), (lambda: setattr(Half, "factor", 0.25),))


@program
def forward_of_the_class_patched() -> Program:
    class Half(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x / 2

    return Program(nn.Sequential(Half()), (lambda: setattr(Half, "forward", lambda _self, x: x / 4),))


@program
def object_that_holds_a_tensor_replaced() -> Program:
    m = WithProcessor(TensorHolder(1.0))
    return Program(m, (lambda: setattr(m, "proc", TensorHolder(5.0)),))


@program
def tensor_of_an_object_replaced() -> Program:
    m = WithProcessor(TensorHolder(1.0))
    return Program(m, (lambda: setattr(m.proc, "offset", m.proc.offset + 4),))


@program
def tensor_of_an_object_changed_in_place() -> Program:
    m = WithProcessor(TensorHolder(1.0))
    return Program(m, (torch.inference_mode()(lambda: m.proc.offset.mul_(-3)),))


@program
def function_attribute_replaced() -> Program:
    m = WithProcessor(torch.relu)
    return Program(m, (lambda: setattr(m, "proc", torch.tanh), lambda: setattr(m, "proc", lambda x: x * 7)))


@program
def lambda_attribute_replaced_by_one_of_the_same_code() -> Program:
    def times(n: int) -> Callable[[Any], Any]:
        return lambda x: x * n

    m = WithProcessor(times(2))
    return Program(m, (lambda: setattr(m, "proc", times(5)),))


@program
def partial_attribute_replaced() -> Program:
    m = WithProcessor(functools.partial(torch.mul, other=2))
    return Program(m, (lambda: setattr(m, "proc", functools.partial(torch.mul, other=3)),))


@program
def bound_method_attribute_replaced() -> Program:
    m = WithProcessor(Scale(2.0).__call__)
    return Program(m, (lambda: setattr(m, "proc", Scale(4.0).__call__),))


@program
def function_in_a_dict_attribute_replaced() -> Program:
    m = WithProcessor(None)
    table: dict[str, Any] = {"act": torch.relu}
    m.proc = lambda x: table["act"](x)  # noqa: PLW0108
    return Program(m, (lambda: table.update(act=torch.tanh),))


@program
def function_default_changed() -> Program:
    def scaled(x: Any, by: float = 2.0) -> Any:
        return x * by

    return Program(lambda x: scaled(x), (lambda: setattr(scaled, "__defaults__", (3.0,)),))  # noqa: PLW0108


@program
def function_code_changed() -> Program:
    def scaled(x: Any) -> Any:
        return x * 2

    def shifted(x: Any) -> Any:
        return x + 2

    return Program(lambda x: scaled(x), (lambda: setattr(scaled, "__code__", shifted.__code__),))  # noqa: PLW0108


@program
def number_in_a_config_object_changed() -> Program:
    @dataclass
    class Config:
        scale: float = 2.0
        sizes: list[int] = field(default_factory=lambda: [1, 2])

    m = WithProcessor(None)
    m.config = Config()
    m.proc = lambda x: x * m.config.scale + sum(m.config.sizes)
    return Program(m, (lambda: setattr(m.config, "scale", 9.0), lambda: m.config.sizes.append(3)))


@program
def number_in_a_nested_dict_changed() -> Program:
    config: dict[str, Any] = {"layers": [{"scale": 2.0}]}
    return Program(lambda x: x * config["layers"][0]["scale"], (lambda: config["layers"][0].update(scale=5.0),))


@program
def number_in_a_namespace_changed() -> Program:
    holder = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0))
    return Program(lambda x: x * holder.inner.scale, (lambda: setattr(holder.inner, "scale", 5.0),))


@program
def element_of_a_set_changed() -> Program:
    enabled = {"scale"}
    return Program(lambda x: x * 2 if "scale" in enabled else x, (enabled.clear, lambda: enabled.add("scale")))


@program
def order_of_a_dict_changed() -> Program:
    steps: OrderedDict[str, Any] = OrderedDict(add=lambda x: x + 1, mul=lambda x: x * 2)
    return Program(
        lambda x: functools.reduce(lambda y, step: step(y), steps.values(), x), (lambda: steps.move_to_end("add"),)
    )


@program
def module_in_a_plain_list_replaced() -> Program:
    layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
    return Program(
        lambda x: layers[1].to(x)(layers[0].to(x)(x)), (lambda: layers.__setitem__(1, nn.Linear(4, 4)), layers.reverse)
    )


@program
def tensor_in_a_plain_list_replaced() -> Program:
    values = [torch.ones(4), torch.ones(4)]
    return Program(
        lambda x: x + values[0].to(x) * values[1].to(x),
        (lambda: values.__setitem__(1, torch.full((4,), 3.0)), lambda: values[0].add_(1)),
    )


@program
def cache_of_a_holder_replaced() -> Program:
    holder = types.SimpleNamespace(cache=None)

    def new(size: float) -> None:
        holder.cache = types.SimpleNamespace(keys=torch.full((4,), size))

    def step(x: Any) -> Any:
        holder.cache.keys = holder.cache.keys.to(x.device)
        holder.cache.keys.add_(x[0])
        return holder.cache.keys * 2

    new(0.0)
    return Program(step, (lambda: new(10.0), lambda: new(20.0)), lambda: holder.cache.keys)


@program
def hook_replaced_by_another_one() -> Program:
    m = nn.Sequential(nn.Linear(4, 4))
    handles = [m[0].register_forward_hook(lambda _m, _a, out: out * 2)]

    def swap() -> None:
        handles.pop().remove()
        handles.append(m[0].register_forward_hook(lambda _m, _a, out: out * 5))

    return Program(m, (swap, lambda: handles.pop().remove()))


@program
def state_in_a_hook() -> Program:
    m, seen = nn.Sequential(nn.Linear(4, 4)), [1.0]
    m[0].register_forward_hook(lambda _m, _a, out: out * seen[0])
    return Program(m, (lambda: seen.__setitem__(0, 4.0),))


@program
def parametrization_registered() -> Program:
    class Doubled(nn.Module):  # type: ignore[misc]
        def forward(self, weight: Any) -> Any:
            return weight * 2

    m = nn.Sequential(nn.Linear(4, 4))

    def add() -> None:
        nn.utils.parametrize.register_parametrization(m[0], "weight", Doubled())

    def remove() -> None:
        nn.utils.parametrize.remove_parametrizations(m[0], "weight", leave_parametrized=False)

    return Program(m, (add, remove))


@program
def global_of_a_module_changed() -> Program:
    module = types.ModuleType("settings_of_a_program")
    exec("SCALE = 2\ndef act(x):\n    return x * SCALE\ndef fn(x):\n    return act(x)\n", module.__dict__)  # noqa: S102
    return Program(
        module.fn, (lambda: setattr(module, "SCALE", 5), lambda: setattr(module, "act", lambda x: x - module.SCALE))
    )


@program
def property_reads_changed_state() -> Program:
    class Gain(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = {"gain": 2.0}

        @property
        def gain(self) -> float:
            return self.table["gain"]

        def forward(self, x: Any) -> Any:
            return x * self.gain

    m = Gain()
    return Program(m, (lambda: m.table.update(gain=3.0),))


@program
def environment_variable_changed() -> Program:
    name = f"PROGRAM_SCALE_{next(_names)}"
    os.environ[name] = "2"
    return Program(lambda x: x * float(os.environ[name]), (lambda: os.environ.update({name: "6"}),))


@program
def context_variable_changed() -> Program:
    scale: ContextVar[float] = ContextVar("scale", default=2.0)
    return Program(lambda x: x * scale.get(), (lambda: scale.set(4.0),))


@program
def numpy_array_changed_in_place() -> Program:
    numpy = pytest.importorskip("numpy")
    weights = numpy.ones(4, dtype=numpy.float32)
    return Program(lambda x: x * float(weights[0]), (lambda: weights.__setitem__(0, 8.0),))


@program
def dropout_probability_changed_in_eval() -> Program:
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)).eval()
    return Program(m, (lambda: setattr(m[1], "p", 0.9), lambda: setattr(m[1], "p", 0.0), m.train))


@program
def batch_norm_switched_to_train() -> Program:
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    return Program(m, (m.train, m.eval, lambda: setattr(m[1], "momentum", 0.9), m.train), m.state_dict)


@program
def weights_converted_and_back() -> Program:
    m = nn.Sequential(nn.Linear(4, 4))
    return Program(m, (lambda: m.half().float(), lambda: m.double().float()))


@program
def alias_of_a_submodule_swapped() -> Program:
    m = nn.Module()
    m.a, m.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def swap() -> None:
        m.a, m.b = m.b, m.a

    m.forward = lambda x: m.b(torch.relu(m.a(x)))
    return Program(m, (swap,))


# State that the call itself changes

_names = itertools.count()


@program
def counter_attribute() -> Program:
    class Counts(nn.Module):  # type: ignore[misc]
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    m = Counts()
    return Program(m, state=lambda: m.calls)


@program
def counter_that_does_not_reach_the_result() -> Program:
    class Counts(nn.Module):  # type: ignore[misc]
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * 2

    m = Counts()
    return Program(m, state=lambda: m.calls)


@program
def every_third_call_differs() -> Program:
    class Alternates(nn.Module):  # type: ignore[misc]
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls = (self.calls + 1) % 5
            return x * 2 if self.calls else x - 2

    m = Alternates()
    return Program(m, state=lambda: m.calls)


@program
def iterator_attribute() -> Program:
    numbers: Iterator[int] = itertools.count(1)
    return Program(lambda x: x * next(numbers))


@program
def generator_in_a_closure() -> Program:
    def schedule() -> Iterator[float]:
        value = 1.0
        while True:
            yield value
            value *= 0.5

    values = schedule()
    return Program(lambda x: x * next(values))


@program
def nonlocal_number() -> Program:
    total = 0

    def fn(x: Any) -> Any:
        nonlocal total
        total += 1
        return x + total

    return Program(fn, state=lambda: total)


@program
def deque_attribute_popped() -> Program:
    class Policy(nn.Module):  # type: ignore[misc]
        """The shape of a policy of lerobot: one run of the network fills a queue of actions."""

        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 12)
            self.queue: deque[Any] = deque(maxlen=3)

        def reset(self) -> None:
            self.queue.clear()

        def forward(self, x: Any) -> Any:
            if not self.queue:
                self.queue.extend(self.lin(x).chunk(3, dim=-1))
            return self.queue.popleft()

    m = Policy()
    return Program(m, (m.reset, m.reset), lambda: list(m.queue))


@program
def deque_of_observations() -> Program:
    window: deque[Any] = deque(maxlen=3)

    def fn(x: Any) -> Any:
        window.append(x.mean(0))
        return torch.stack(list(window)).sum(0) + x

    return Program(fn, (window.clear,), lambda: list(window))


@program
def list_attribute_grows() -> Program:
    class History(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def forward(self, x: Any) -> Any:
            self.seen.append(x.sum())
            return torch.stack(self.seen).sum() + x

    m = History()
    return Program(m, (m.seen.clear,), lambda: m.seen)


@program
def last_result_kept_in_an_attribute() -> Program:
    class Keeps(nn.Module):  # type: ignore[misc]
        last: Any = None

        def forward(self, x: Any) -> Any:
            self.last = x * 3
            return x + 1

    m = Keeps()
    return Program(m, state=lambda: m.last)


@program
def last_result_used_by_the_next_call() -> Program:
    class Smooths(nn.Module):  # type: ignore[misc]
        last: Any = None

        def forward(self, x: Any) -> Any:
            new = x.mean(0)
            self.last = new if self.last is None else self.last * 0.5 + new * 0.5
            return x - self.last

    m = Smooths()
    return Program(m, (lambda: setattr(m, "last", None),), lambda: m.last)


@program
def buffer_rebound_by_the_call() -> Program:
    class Mean(nn.Module):  # type: ignore[misc]
        mean: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            return x - self.mean

    m = Mean()
    return Program(m, (), lambda: m.mean)


@program
def buffer_updated_in_place_by_the_call() -> Program:
    class Mean(nn.Module):  # type: ignore[misc]
        mean: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
            return x - self.mean

    m = Mean()
    return Program(m, (lambda: m.mean.zero_(),), lambda: m.mean)  # noqa: PLW0108


@program
def memo_by_shape() -> Program:
    memo: dict[int, Any] = {}

    def fn(x: Any) -> Any:
        if x.shape[0] not in memo:
            memo[x.shape[0]] = torch.arange(4.0, device=x.device) + len(memo)
        return x + memo[x.shape[0]]

    return Program(fn, (memo.clear, lambda: memo.update({99: None})))


@program
def python_random_number() -> Program:
    return Program(lambda x: x * (2 if random.random() < 0.5 else 3))  # noqa: S311


@program
def layer_dropped_at_random() -> Program:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def fn(x: Any) -> Any:
        for layer in layers:
            if random.random() > 0.5:  # noqa: S311
                x = layer.to(x)(x)
        return x + 1

    return Program(fn)


@program
def module_rebinds_its_processor_in_the_call() -> Program:
    class Alternates(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.proc, self.other = Scale(2.0), Shift(2.0)

        def forward(self, x: Any) -> Any:
            y = self.proc(x)
            self.proc, self.other = self.other, self.proc
            return y

    return Program(Alternates())


def agree(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and got.shape == want.shape and torch.allclose(got, want, 1e-4, 1e-5)
    if isinstance(want, dict):
        return want.keys() == got.keys() and all(agree(got[name], value) for name, value in want.items())
    if isinstance(want, list):
        return len(got) == len(want) and all(itertools.starmap(agree, zip(got, want, strict=True)))
    return bool(got == want)


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_returns_what_eager_returns(target: Any, mode: Any, name: str) -> None:
    copies = []
    for _ in range(2):
        seed(0)
        copies.append(PROGRAMS[name]())
        if isinstance(copies[-1].fn, nn.Module):
            target.module(copies[-1].fn)
    subject, eager = copies
    captured = target.capture(subject.fn)
    wrong, calls, kept = [], 0, []
    for after, changes in enumerate([(), *zip(subject.changes, eager.changes, strict=True)]):
        for change in changes:
            seed(1)
            change()
        for rows in (3, 3, 2, 3):
            calls += 1
            results = []
            for fn in (captured, eager.fn):
                seed(calls)
                x = target.randn(rows, 4)
                seed(calls)
                with mode():
                    results.append(fn(x))
            kept.append((results[0], results[1].clone()))
            if not agree(*results):
                wrong.append(f"call {calls}, after change {after}: the result")
            if not agree(subject.state(), eager.state()):
                wrong.append(f"call {calls}, after change {after}: the state")
    assert wrong == []
    assert all(agree(*pair) for pair in kept), "an earlier result was overwritten"
    report = captured.report()
    assert report.replays + sum(report.eager_calls.values()) == calls


COPIES: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x.t().contiguous() * 2,
    "reshape": lambda x: x.t().reshape(-1) * 2,
    "reshape of expand": lambda x: x[:, :1].expand(-1, 4).reshape(-1) * 2,
    "flatten": lambda x: x.t().flatten() * 2,
    "to": lambda x: x.to(torch.float64) * 2,
    "contiguous without a copy": lambda x: x.contiguous() * 2,
}


@pytest.mark.parametrize("name", COPIES)
def test_an_operator_that_copies_or_returns_its_input_replays(target: Any, mode: Any, name: str) -> None:
    """Attention layers do this with every head: under `inference_mode` these operators are not split into others."""
    captured = target.capture(COPIES[name])
    with mode():
        for _ in range(3):
            x = target.randn(3, 4)
            assert agree(captured(x), COPIES[name](x))
    assert captured.report().refusals == ()
    assert captured.report().replays > 0


def test_an_expanded_argument(target: Any, mode: Any) -> None:
    """The time steps of a diffusion pipeline are `timestep.expand(batch)`: all elements share one address."""
    captured = target.capture(lambda x: x * 2)
    with mode():
        for _ in range(3):
            x = target.randn(1).expand(3)
            assert agree(captured(x), x * 2)
    assert captured.report().replays > 0


def test_an_integer_argument_is_counted(target: Any, mode: Any) -> None:
    captured = target.capture(lambda index: torch.arange(8.0, device=index.device)[index] * 2)
    with mode():
        for calls in range(1, 5):
            captured(torch.randint(0, 8, (3,), device=target.device))
            report = captured.report()
            assert report.replays + sum(report.eager_calls.values()) == calls


def test_a_list_in_a_static_argument_that_the_call_appends_to(target: Any, mode: Any) -> None:
    class Log:
        def __init__(self) -> None:
            self.entries: list[int] = []

    def step(x: Any, log: Log) -> Any:
        log.entries.append(1)
        return x * len(log.entries)

    captured, log = target.capture(step, static=("log",)), Log()
    with mode():
        results = [captured(target.randn(1).fill_(1), log).item() for _ in range(4)]
    assert results == [1, 2, 3, 4]
    assert len(log.entries) == 4


def test_another_object_for_a_static_argument(target: Any, mode: Any) -> None:
    captured = target.capture(lambda x, scale: x * scale.by, static=("scale",))
    with mode():
        for by in (2.0, 2.0, 3.0, 3.0, 2.0):
            assert captured(target.randn(1).fill_(1), Scale(by)).item() == by
        scale = Scale(5.0)
        for by in (5.0, 5.0, 7.0, 7.0):
            scale.by = by
            assert captured(target.randn(1).fill_(1), scale).item() == by


class Policy(nn.Module):  # type: ignore[misc]
    """A parent with a network that is captured in its place, as in `policy.model = rs.capture(policy.model)`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def select_action(self, x: Any) -> Any:
        return self.model(x).argmax(-1)

    def forward(self, x: Any) -> Any:
        return self.model(x)


@pytest.fixture
def policies(target: Any) -> Any:
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(target.module(Policy()).eval())
    made[0].model = target.capture(made[0].model)
    return made


def test_a_captured_child_of_a_module_replays(target: Any, mode: Any, policies: Any) -> None:
    policy, eager = policies
    with mode():
        for _ in range(4):
            x = target.randn(3, 4)
            assert agree(policy(x), eager(x))
            assert agree(policy.select_action(x), eager.select_action(x))
    assert policy.model.report().replays > 0


def test_a_captured_child_is_the_module_it_was(policies: Any) -> None:
    policy, eager = policies
    assert isinstance(policy.model, nn.Module)
    assert isinstance(policy.model[0], nn.Linear)
    assert len(policy.model) == 3
    assert list(policy.state_dict()) == list(eager.state_dict())
    assert [name for name, _ in policy.named_parameters()] == [name for name, _ in eager.named_parameters()]
    assert agree(dict(policy.state_dict()), dict(eager.state_dict()))
    assert "model" in dict(policy.named_children())


@pytest.mark.parametrize("change", ["double", "train", "load_state_dict", "apply", "requires_grad_", "replace_layer"])
def test_a_change_of_the_parent_reaches_the_captured_child(target: Any, mode: Any, policies: Any, change: str) -> None:
    policy, eager = policies

    def changed(p: Any) -> None:
        torch.manual_seed(7)
        if change == "load_state_dict":
            p.load_state_dict({name: torch.ones_like(value) for name, value in p.state_dict().items()})
        elif change == "apply":
            p.apply(lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None)
        elif change == "requires_grad_":
            p.requires_grad_(False)
        elif change == "replace_layer":
            p.model[2] = target.module(nn.Linear(4, 2))
        else:
            getattr(p, change)()

    dtype = torch.float32
    for round_ in range(2):
        for _ in range(3):
            x = target.randn(3, 4).to(dtype)
            with mode():
                got, want = policy(x), eager(x)
            assert got.dtype == want.dtype
            assert agree(got, want)
        if not round_:
            changed(policy)
            changed(eager)
            dtype = next(eager.parameters()).dtype
    assert agree(dict(policy.state_dict()), dict(eager.state_dict()))
