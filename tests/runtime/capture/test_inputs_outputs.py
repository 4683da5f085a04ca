"""A replay uses the values of its own call: not of an earlier call, another constant or another layout."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import rocsolid as rs
from rocsolid.errors import CaptureError, StaleOutputError, UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def f(x: Any) -> Any:
    return (x * 2 + 1).relu()


def test_an_input_changed_in_place_is_read_again(target: Any) -> None:
    g, x = target.capture(f), target.randn(4, 4)
    g(x)
    changes: list[Any] = [lambda: x.add_(1), lambda: x.data.mul_(3), x.zero_]
    for change in changes:
        change()
        assert torch.equal(g(x), f(x))
    assert g.report().replays == 3


@pytest.mark.parametrize("noise", [0, 1])
def test_a_call_without_tensors_uses_those_that_the_function_reaches(target: Any, noise: int) -> None:
    x, total = target.randn(4), target.randn(4)
    plain = total.clone()

    def add(total: Any) -> Any:
        total.add_(x + noise * torch.rand_like(x) if noise else x)
        return total * 2

    g = target.capture(lambda: add(total), verify=rs.every(3, max_overhead=1.0))
    for number in range(8):
        x.fill_(number)
        torch.manual_seed(number)
        got, drawn = g(), target.randn(1)
        torch.manual_seed(number)
        assert torch.allclose(got, add(plain))
        assert torch.equal(drawn, target.randn(1))
        assert torch.allclose(total, plain)
    assert g.report().replays == 5
    assert g.report().backend == target.backend


def test_a_call_with_only_a_static_tensor_is_captured(target: Any) -> None:
    x = target.randn(4)
    g = target.capture(f, static=("x",))
    for number in range(4):
        x.fill_(number)
        assert torch.equal(g(x), f(x))
    assert g.report().replays == 3


def test_an_input_made_in_inference_mode_is_read_again(target: Any) -> None:
    g = target.capture(f)
    with torch.inference_mode():
        x = target.randn(4, 4)
        g(x)
        x.add_(1)
        assert torch.equal(g(x), f(x))
    assert torch.equal(g(x), f(x))


def test_the_graph_never_uses_the_callers_tensor(target: Any) -> None:
    g, first, second = target.capture(f), target.randn(4, 4), target.randn(4, 4)
    before = first.clone()
    g(first)
    g(second)

    assert torch.equal(first, before)
    assert g.inputs(first)[0].data_ptr() not in (first.data_ptr(), second.data_ptr())


def test_cloned_outputs_stay_valid(target: Any) -> None:
    g, x1, x2 = target.capture(f), target.randn(4), target.randn(4)
    g(x1)
    a, b = g(x1), g(x2)

    assert torch.equal(a, f(x1))
    assert torch.equal(b, f(x2))


def test_an_alias_output_raises_when_it_is_stale(target: Any) -> None:
    g, x1, x2 = target.capture(f, outputs="alias"), target.randn(4), target.randn(4)
    g(x1)
    a = g(x1)
    where = a.data_ptr()
    assert torch.equal(a, f(x1))
    b = g(x2)

    assert b.data_ptr() == where
    assert torch.equal(b, f(x2))
    for use in (lambda: a + 1, a.sum, lambda: torch.stack([b, a]), lambda: repr(a), a.data_ptr):
        with pytest.raises(
            StaleOutputError, match="stale output: a later call of the captured function has overwritten this tensor"
        ):
            use()


def test_outputs_out_fills_the_callers_tensors(target: Any) -> None:
    g, x = target.capture(lambda x: {"y": x + 1, "n": 3}, outputs="out"), target.randn(4)
    out = {"y": torch.empty_like(x), "n": None}
    for _ in range(2):
        assert g(x, out=out) is out
        assert torch.equal(out["y"], x + 1)
        x.mul_(2)
    with pytest.raises(CaptureError, match="pass out="):
        g(x)
    with pytest.raises(UsageError, match=r"`out\['y'\]` must be a float32\[4\] tensor"):
        g(x, out={"y": torch.empty(5, device=target.device), "n": None})


def test_every_kind_of_result(target: Any) -> None:
    """A view of another result, the input itself, a view of it, a held tensor, None, a number."""
    held = target.randn(3)

    def many(x: Any) -> Any:
        y = x * 2
        return [y, y[1:], x, x[0], held, None, 7, {"z": (y.sum(),)}]

    g, x = target.capture(many), target.randn(4, 4)
    g(x)
    y, tail, same, row, kept, nothing, seven, rest = g(x)

    assert torch.equal(y, x * 2)
    assert tail.data_ptr() == y[1:].data_ptr(), "results that share memory still share it"
    assert same is x
    assert row.data_ptr() == x.data_ptr()
    assert kept is held
    assert (nothing, seven) == (None, 7)
    assert torch.equal(rest["z"][0], (x * 2).sum())
    assert g.report().replays == 1


def test_writes_to_arguments_are_copied_back(target: Any) -> None:
    def update(cache: Any, x: Any) -> Any:
        cache[1:].copy_(cache[:-1].clone())
        cache[0].copy_(x)
        return cache.sum(0)

    g, cache, twin = target.capture(update), target.randn(3, 4), None
    twin = cache.clone()
    for _ in range(4):
        x = target.randn(4)
        assert torch.allclose(g(cache, x), update(twin, x))
        assert torch.equal(cache, twin)
    assert g.report().replays == 3
    assert g.report().graphs[0].mutates == ("cache",)


def test_equal_constants_of_different_types_have_different_graphs(target: Any) -> None:
    def by_kind(x: Any, flag: Any) -> Any:
        return x + {bool: 1, int: 2, float: 3}[type(flag)]

    g, x = target.capture(by_kind), target.randn(3)
    for _ in range(2):
        for flag in (True, 1, 1.0):
            assert torch.equal(g(x, flag), by_kind(x, flag))
    assert len(g.report().graphs) == 3
    assert g.report().replays == 3

    def sign(x: Any, zero: float) -> Any:
        return x + torch.atan2(torch.zeros_like(x), torch.full_like(x, zero))

    g = target.capture(sign)
    for zero in (0.0, -0.0, 0.0, -0.0):
        assert torch.equal(g(x, zero), sign(x, zero))


class Config:
    """A plain object."""

    def __init__(self, scale: float) -> None:
        self.scale = scale


@dataclass
class Fields:
    """A dataclass with a constant and a tensor."""

    scale: float
    bias: Any


def test_dataclass_arguments_are_compared_by_value(target: Any) -> None:
    def scaled(x: Any, fields: Fields) -> Any:
        return x * fields.scale + fields.bias

    g, x, bias = target.capture(scaled), target.randn(3), target.randn(3)
    one, two = Fields(2.0, bias), Fields(5.0, bias)
    for _ in range(2):
        for fields in (one, two):
            assert torch.equal(g(x, fields), scaled(x, fields))
    one.scale = 7.0
    assert torch.equal(g(x, one), scaled(x, one))


def test_an_argument_that_cannot_be_part_of_the_key_is_refused_by_path(target: Any) -> None:
    g, x = target.capture(lambda x, parts: x * parts["config"].scale), target.randn(3)
    config = Config(2.0)
    for _ in range(2):
        assert torch.equal(g(x, {"config": config}), x * 2)
        config.scale = 2.0
    config.scale = 3.0
    assert torch.equal(g(x, {"config": config}), x * 3)

    assert not g.report().graphs
    assert "argument `parts['config']` is a" in g.report().refusals[0].message
    assert g.report().eager_calls == {"argument": 3}


def test_a_static_argument_is_compared_by_identity_and_constants(target: Any) -> None:
    def scaled(x: Any, config: Config) -> Any:
        return x * config.scale

    g, x, one, two = target.capture(scaled, static=("config",)), target.randn(3), Config(2.0), Config(3.0)
    for _ in range(2):
        for config in (one, two):
            assert torch.equal(g(x, config), scaled(x, config))
    assert g.report().replays == 2
    one.scale = 9.0
    assert torch.equal(g(x, one), x * 9.0)


def test_every_memory_layout_has_its_own_graph(target: Any) -> None:
    g, x = target.capture(lambda x: x * 2 + torch.arange(x.numel(), device=x.device).view(x.shape)), target.randn(4, 4)
    eager = g.__rocsolid_function__
    layouts = [
        x,
        x.t().contiguous().t(),
        target.randn(4, 1).expand(4, 4),
        target.randn(6, 6)[1:5, 1:5],
        target.randn(7).unfold(0, 4, 1),
        target.randn(40)[3:19].view(4, 4),
    ]
    for _ in range(2):
        for layout in layouts:
            assert torch.equal(g(layout), eager(layout))
    # The slice with an offset looks like the contiguous one, and shares its graph.
    assert len(g.report().graphs) == len(layouts) - 1

    image = target.randn(2, 3, 4, 4)
    for layout in (image, image.to(memory_format=torch.channels_last)):
        for _ in range(2):
            assert torch.equal(g(layout), eager(layout))


def test_a_transposed_view_of_a_static_input_is_copied(target: Any) -> None:
    g, x = target.capture(lambda x: x * 2), target.randn(4, 4)
    g(x)
    buffer = g.inputs(x)[0]
    buffer.copy_(x)
    assert torch.equal(g(buffer.t()), x.t() * 2)
    assert torch.equal(g(buffer.t()), x.t() * 2)
    assert torch.equal(g(buffer), x * 2)


def test_inputs_returns_the_static_buffers(target: Any) -> None:
    g, x, m = target.capture(lambda x, mask=None: x * mask), target.randn(4), target.randn(4)
    handed = g.inputs(x, mask=m)
    handed[0].fill_(3)
    handed.kwargs["mask"].fill_(2)

    assert torch.equal(g(*handed, **handed.kwargs), torch.full((4,), 6.0, device=target.device))
    assert torch.equal(g(handed[0], mask=m), m * 3)


class Pair(NamedTuple):
    """A named tuple of tensors."""

    a: Any
    b: Any


def test_nested_arguments_and_results_keep_their_types(target: Any) -> None:
    def nested(pair: Pair, batch: dict[str, Any], *rest: Any, scale: float = 1.0, **named: Any) -> Any:
        total = pair.a + pair.b + batch["x"][0] + sum(rest) + named["extra"]
        return Pair(total * scale, {"list": [total]})

    g = target.capture(nested)
    a, b, c, d, e = (target.randn(3) for _ in range(5))
    for _ in range(3):
        result = g(Pair(a, b), {"x": [c]}, d, scale=2.0, extra=e)
        truth = nested(Pair(a, b), {"x": [c]}, d, scale=2.0, extra=e)
        assert type(result) is Pair
        assert torch.equal(result.a, truth.a)
        assert torch.equal(result.b["list"][0], truth.b["list"][0])
        a.add_(1)
    assert g.report().replays == 2


def test_the_same_tensor_passed_twice_has_its_own_graph(target: Any) -> None:
    def pair(x: Any, y: Any) -> Any:
        return x - 2 * y

    g, x, y = target.capture(pair), target.randn(3), target.randn(3)
    for args in ((x, y), (x, x), (x, y), (x, x), (y, y)):
        assert torch.equal(g(*args), pair(*args))
    assert len(g.report().graphs) == 2
    assert g.report().replays == 3


def test_a_transformers_model_output_as_argument_and_result(target: Any) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def f(given: Any, scale: Any) -> Any:
        return outputs.BaseModelOutput(last_hidden_state=given.last_hidden_state * scale, hidden_states=(scale + 1,))

    g = target.capture(f)
    for _ in range(3):
        given, scale = outputs.BaseModelOutput(last_hidden_state=target.randn(2, 3)), target.randn(3)
        got, truth = g(given, scale), f(given, scale)
        assert type(got) is type(truth)
        assert got.keys() == truth.keys()
        assert torch.equal(got.last_hidden_state, truth.last_hidden_state)
        assert torch.equal(got["hidden_states"][0], truth.hidden_states[0])
        assert got.attentions is None
    assert g.report().replays == 2
