"""A replay answers with the values of this call: not of an earlier one, not of another constant, not of another layout."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from rocsolid.errors import CaptureError, StaleOutputError, UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def f(x: Any) -> Any:
    return (x * 2 + 1).relu()


def test_an_input_that_was_changed_in_place_is_read_again(place: Any) -> None:
    g, x = place.capture(f), place.randn(4, 4)
    g(x)
    changes: list[Any] = [lambda: x.add_(1), lambda: x.data.mul_(3), x.zero_]
    for change in changes:
        change()
        assert torch.equal(g(x), f(x))
    assert g.report().replays == 3


def test_an_input_made_in_inference_mode_is_read_again(place: Any) -> None:
    g = place.capture(f)
    with torch.inference_mode():
        x = place.randn(4, 4)
        g(x)
        x.add_(1)
        assert torch.equal(g(x), f(x))
    assert torch.equal(g(x), f(x))


def test_a_callers_tensor_is_never_adopted(place: Any) -> None:
    g, first, second = place.capture(f), place.randn(4, 4), place.randn(4, 4)
    before = first.clone()
    g(first)
    g(second)

    assert torch.equal(first, before)
    assert g.inputs(first)[0].data_ptr() not in (first.data_ptr(), second.data_ptr())


def test_held_outputs_stay_as_they_were(place: Any) -> None:
    g, x1, x2 = place.capture(f), place.randn(4), place.randn(4)
    g(x1)
    a, b = g(x1), g(x2)

    assert torch.equal(a, f(x1))
    assert torch.equal(b, f(x2))


def test_an_alias_is_good_until_the_next_call_and_then_says_so(place: Any) -> None:
    g, x1, x2 = place.capture(f, outputs="alias"), place.randn(4), place.randn(4)
    g(x1)
    a = g(x1)
    where = a.data_ptr()
    assert torch.equal(a, f(x1))
    b = g(x2)

    assert b.data_ptr() == where
    assert torch.equal(b, f(x2))
    for use in (lambda: a + 1, a.sum, lambda: torch.stack([b, a]), lambda: repr(a), a.data_ptr):
        with pytest.raises(
            StaleOutputError, match="use it before the next call, clone it, or capture with outputs='clone'"
        ):
            use()


def test_results_are_put_into_the_callers_tensors(place: Any) -> None:
    g, x = place.capture(lambda x: {"y": x + 1, "n": 3}, outputs="out"), place.randn(4)
    out = {"y": torch.empty_like(x), "n": None}
    for _ in range(2):
        assert g(x, out=out) is out
        assert torch.equal(out["y"], x + 1)
        x.mul_(2)
    with pytest.raises(CaptureError, match="a call needs out="):
        g(x)
    with pytest.raises(UsageError, match=r"out\['y'\] must be a tensor of float32\[4\]"):
        g(x, out={"y": torch.empty(5, device=place.device), "n": None})


def test_results_of_every_kind(place: Any) -> None:
    """A view of another result, the input itself, a view of it, a held tensor, nothing, a number."""
    held = place.randn(3)

    def many(x: Any) -> Any:
        y = x * 2
        return [y, y[1:], x, x[0], held, None, 7, {"z": (y.sum(),)}]

    g, x = place.capture(many), place.randn(4, 4)
    g(x)
    y, tail, same, row, kept, nothing, seven, rest = g(x)

    assert torch.equal(y, x * 2)
    assert tail.data_ptr() == y[1:].data_ptr(), "results that share memory go on sharing it"
    assert same is x
    assert row.data_ptr() == x.data_ptr()
    assert kept is held
    assert (nothing, seven) == (None, 7)
    assert torch.equal(rest["z"][0], (x * 2).sum())
    assert g.report().replays == 1


def test_what_the_function_writes_into_its_arguments_arrives(place: Any) -> None:
    def update(cache: Any, x: Any) -> Any:
        cache[1:].copy_(cache[:-1].clone())
        cache[0].copy_(x)
        return cache.sum(0)

    g, cache, twin = place.capture(update), place.randn(3, 4), None
    twin = cache.clone()
    for _ in range(4):
        x = place.randn(4)
        assert torch.allclose(g(cache, x), update(twin, x))
        assert torch.equal(cache, twin)
    assert g.report().replays == 3
    assert g.report().graphs[0].mutates == ("cache",)


def test_constants_that_compare_equal_are_not_the_same(place: Any) -> None:
    def by_kind(x: Any, flag: Any) -> Any:
        return x + {bool: 1, int: 2, float: 3}[type(flag)]

    g, x = place.capture(by_kind), place.randn(3)
    for _ in range(2):
        for flag in (True, 1, 1.0):
            assert torch.equal(g(x, flag), by_kind(x, flag))
    assert len(g.report().graphs) == 3
    assert g.report().replays == 3

    def sign(x: Any, zero: float) -> Any:
        return x + torch.atan2(torch.zeros_like(x), torch.full_like(x, zero))

    g = place.capture(sign)
    for zero in (0.0, -0.0, 0.0, -0.0):
        assert torch.equal(g(x, zero), sign(x, zero))


class Config:
    """An object like any other."""

    def __init__(self, scale: float) -> None:
        self.scale = scale


@dataclass
class Fields:
    """Numbers and tensors by name."""

    scale: float
    bias: Any


def test_objects_are_known_by_what_is_in_them(place: Any) -> None:
    def scaled(x: Any, fields: Fields) -> Any:
        return x * fields.scale + fields.bias

    g, x, bias = place.capture(scaled), place.randn(3), place.randn(3)
    one, two = Fields(2.0, bias), Fields(5.0, bias)
    for _ in range(2):
        for fields in (one, two):
            assert torch.equal(g(x, fields), scaled(x, fields))
    one.scale = 7.0
    assert torch.equal(g(x, one), scaled(x, one))


def test_an_object_no_key_can_hold_is_refused_by_its_path(place: Any) -> None:
    g, x = place.capture(lambda x, parts: x * parts["config"].scale), place.randn(3)
    config = Config(2.0)
    for _ in range(2):
        assert torch.equal(g(x, {"config": config}), x * 2)
        config.scale = 2.0
    config.scale = 3.0
    assert torch.equal(g(x, {"config": config}), x * 3)

    assert not g.report().graphs
    assert "argument \"parts['config']\" is a" in g.report().refusals[0].detail
    assert g.report().eager_calls == {"argument": 3}


def test_a_static_argument_is_known_by_identity_and_by_its_numbers(place: Any) -> None:
    def scaled(x: Any, config: Config) -> Any:
        return x * config.scale

    g, x, one, two = place.capture(scaled, static=("config",)), place.randn(3), Config(2.0), Config(3.0)
    for _ in range(2):
        for config in (one, two):
            assert torch.equal(g(x, config), scaled(x, config))
    assert g.report().replays == 2
    one.scale = 9.0
    assert torch.equal(g(x, one), x * 9.0)


def test_every_layout_is_a_graph_of_its_own(place: Any) -> None:
    g, x = place.capture(lambda x: x * 2 + torch.arange(x.numel(), device=x.device).view(x.shape)), place.randn(4, 4)
    eager = g.__rocsolid_function__
    layouts = [
        x,
        x.t().contiguous().t(),
        place.randn(4, 1).expand(4, 4),
        place.randn(6, 6)[1:5, 1:5],
        place.randn(7).unfold(0, 4, 1),
        place.randn(40)[3:19].view(4, 4),
    ]
    for _ in range(2):
        for layout in layouts:
            assert torch.equal(g(layout), eager(layout))
    # The slice with an offset looks like the contiguous one, and shares its graph.
    assert len(g.report().graphs) == len(layouts) - 1

    image = place.randn(2, 3, 4, 4)
    for layout in (image, image.to(memory_format=torch.channels_last)):
        for _ in range(2):
            assert torch.equal(g(layout), eager(layout))


def test_a_transposed_view_of_the_buffer_itself_is_not_taken_for_it(place: Any) -> None:
    g, x = place.capture(lambda x: x * 2), place.randn(4, 4)
    g(x)
    buffer = g.inputs(x)[0]
    buffer.copy_(x)
    assert torch.equal(g(buffer.t()), x.t() * 2)
    assert torch.equal(g(buffer.t()), x.t() * 2)
    assert torch.equal(g(buffer), x * 2)


def test_buffers_are_handed_out_to_be_written_into(place: Any) -> None:
    g, x, m = place.capture(lambda x, mask=None: x * mask), place.randn(4), place.randn(4)
    handed = g.inputs(x, mask=m)
    handed[0].fill_(3)
    handed.kwargs["mask"].fill_(2)

    assert torch.equal(g(*handed, **handed.kwargs), torch.full((4,), 6.0, device=place.device))
    assert torch.equal(g(handed[0], mask=m), m * 3)


class Pair(NamedTuple):
    """Two of them."""

    a: Any
    b: Any


def test_nested_arguments_come_and_go_by_type(place: Any) -> None:
    def nested(pair: Pair, batch: dict[str, Any], *rest: Any, scale: float = 1.0, **named: Any) -> Any:
        total = pair.a + pair.b + batch["x"][0] + sum(rest) + named["extra"]
        return Pair(total * scale, {"list": [total]})

    g = place.capture(nested)
    a, b, c, d, e = (place.randn(3) for _ in range(5))
    for _ in range(3):
        result = g(Pair(a, b), {"x": [c]}, d, scale=2.0, extra=e)
        truth = nested(Pair(a, b), {"x": [c]}, d, scale=2.0, extra=e)
        assert type(result) is Pair
        assert torch.equal(result.a, truth.a)
        assert torch.equal(result.b["list"][0], truth.b["list"][0])
        a.add_(1)
    assert g.report().replays == 2


def test_one_tensor_given_twice_is_another_call(place: Any) -> None:
    def pair(x: Any, y: Any) -> Any:
        return x - 2 * y

    g, x, y = place.capture(pair), place.randn(3), place.randn(3)
    for args in ((x, y), (x, x), (x, y), (x, x), (y, y)):
        assert torch.equal(g(*args), pair(*args))
    assert len(g.report().graphs) == 2
    assert g.report().replays == 3


def test_an_output_of_transformers_comes_and_goes(place: Any) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def f(given: Any, scale: Any) -> Any:
        return outputs.BaseModelOutput(last_hidden_state=given.last_hidden_state * scale, hidden_states=(scale + 1,))

    g = place.capture(f)
    for _ in range(3):
        given, scale = outputs.BaseModelOutput(last_hidden_state=place.randn(2, 3)), place.randn(3)
        got, truth = g(given, scale), f(given, scale)
        assert type(got) is type(truth)
        assert got.keys() == truth.keys()
        assert torch.equal(got.last_hidden_state, truth.last_hidden_state)
        assert torch.equal(got["hidden_states"][0], truth.hidden_states[0])
        assert got.attentions is None
    assert g.report().replays == 2
