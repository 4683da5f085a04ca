"""Code compiled with the numerics of eager."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from tests.support import needs_torch
from torch.nn import functional

from rocsolid.optimize.passes import eager_numerics
from rocsolid.optimize.passes.eager_numerics import exact_options, use_eager_operators

pytestmark = pytest.mark.torch
_SHAPE = (1, 1, 192)


def _norm(x: Any, y: Any) -> Any:
    wide = (x + y).float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * y + x


def _gate(x: Any, y: Any) -> Any:
    return functional.silu(x + y) * y - x


def _rotate(x: Any, y: Any) -> Any:
    angle = y.float() * 30
    return x * angle.cos().to(x.dtype) + y * angle.sin().to(x.dtype)


def _sum(x: Any, y: Any) -> Any:
    return (x * y).sum(-1, keepdim=True) * x


@pytest.mark.parametrize("function", [_norm, _gate, _rotate, _sum])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_results_are_bitwise_those_of_eager(function: Callable[..., Any], dtype: Any) -> None:
    needs_torch("2.11", "Inductor's C++ code of older ones cannot round each result")
    torch.manual_seed(0)
    compiled = torch.compile(function, dynamic=False, options=exact_options())
    for _ in range(100):
        x, y = torch.randn(2, *_SHAPE).to(dtype)
        assert torch.equal(compiled(x, y), function(x, y))


def test_without_these_options_some_results_differ() -> None:
    """Otherwise the test above would check nothing."""
    torch.manual_seed(0)
    compiled = torch.compile(_norm, dynamic=False)
    pairs = [torch.randn(2, *_SHAPE).to(torch.bfloat16) for _ in range(100)]
    assert not all(torch.equal(compiled(x, y), _norm(x, y)) for x, y in pairs)


def test_silu_gets_the_formula_of_aten() -> None:
    """Before 2.13, torch decomposes it to another one."""

    def decomposed(x: Any) -> Any:
        return torch.ops.aten.mul.Tensor(x, torch.ops.aten.sigmoid.default(x))

    x = torch.linspace(-20, 20, 4001)
    graph = torch.fx.symbolic_trace(decomposed).graph
    for node in graph.nodes:
        node.meta["val"] = x
    use_eager_operators(graph)
    assert not any(node.target is torch.ops.aten.sigmoid.default for node in graph.nodes)
    assert torch.equal(torch.fx.GraphModule({}, graph)(x), x / (1 + torch.exp(-x)))


def test_on_the_cpu_torch_before_2_11_has_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling with them raised a TypeError there."""
    monkeypatch.setattr(torch, "__version__", "2.10.0+cu128")
    assert exact_options("cpu") == {}
    assert exact_options("cuda") != {}


def test_torch_without_these_settings_has_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_numerics, "accepted_options", lambda _: set())
    assert exact_options() == {}
