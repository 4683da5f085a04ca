"""Grad mode, autocast, inference mode, training flag: each has its own graph, or runs in eager."""

from typing import Any

import pytest

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def model(target: Any) -> Any:
    layers = [torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)]
    return target.module(torch.nn.Sequential(*layers)).eval()


def test_a_result_that_requires_grad_is_never_returned_without(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    g(x)
    with torch.enable_grad():
        for _ in range(2):
            result = g(x)
            assert result.requires_grad
            result.sum().backward()
        y = x.clone().requires_grad_()
        g(y).sum().backward()
        assert y.grad is not None
    assert torch.equal(g(x), model(x))
    assert g.report().eager_calls["gradient"] >= 1


def test_each_torch_state_has_its_own_graph(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    kind = target.device
    for _ in range(2):
        assert torch.equal(g(x), model(x))
        with torch.autocast(kind, dtype=torch.bfloat16):
            result = g(x)
            assert result.dtype == torch.bfloat16
            assert torch.equal(result, model(x))
        with torch.inference_mode():
            assert torch.equal(g(x), model(x))
    assert len(g.report().graphs) == 3
    assert g.report().replays == 3
    model.train()
    torch.manual_seed(1)
    results = [g(x), g(x), g(x)]
    torch.manual_seed(1)
    assert all(torch.equal(result, model(x)) for result in results)
    model[1].eval()
    assert torch.equal(g(x), model(x))
    assert torch.equal(g(x), model(x))


def test_a_graph_does_not_use_autocasts_cached_weights(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    with torch.autocast(target.device, dtype=torch.bfloat16):
        model(x)  # from here on autocast caches the cast weights
        g(x)
    for parameter in model.parameters():
        parameter.mul_(2)
    with torch.autocast(target.device, dtype=torch.bfloat16):
        assert torch.equal(g(x), model(x))
    assert g.report().replays == 1


def test_deterministic_algorithms_have_their_own_graph(target: Any) -> None:
    g, x = target.capture(lambda x: x * 2), target.randn(4)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        for wanted in (False, True, False, True):
            torch.use_deterministic_algorithms(wanted)
            for _ in range(2):
                assert torch.equal(g(x), x * 2)
    finally:
        torch.use_deterministic_algorithms(before)
    assert len(g.report().graphs) == 2
    assert g.report().captures == 2
