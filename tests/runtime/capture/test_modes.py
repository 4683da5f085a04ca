"""Gradients, autocast, inference and training: each its own graph, or eager; and training steps that replay."""

from typing import Any

import pytest

from rocsolid.errors import CaptureError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def model(place: Any) -> Any:
    layers = [torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)]
    return place.module(torch.nn.Sequential(*layers)).eval()


def test_a_result_that_carries_a_gradient_is_never_returned_without(place: Any, model: Any) -> None:
    g, x = place.capture(model), place.randn(2, 4)
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


def test_each_mode_has_its_graph(place: Any, model: Any) -> None:
    g, x = place.capture(model), place.randn(2, 4)
    kind = place.device
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


def test_a_graph_reads_no_cast_that_autocast_keeps(place: Any, model: Any) -> None:
    g, x = place.capture(model), place.randn(2, 4)
    with torch.autocast(place.device, dtype=torch.bfloat16):
        model(x)  # from here on the casts of the weights are kept
        g(x)
    for parameter in model.parameters():
        parameter.mul_(2)
    with torch.autocast(place.device, dtype=torch.bfloat16):
        assert torch.equal(g(x), model(x))
    assert g.report().replays == 1


def test_hooks_of_a_parameter_are_for_the_callers_backward(place: Any) -> None:
    model, heard = place.module(torch.nn.Linear(4, 4)), []
    model.weight.register_hook(lambda gradient: heard.append(float(gradient.sum())))
    g, x = place.capture(model, backward=True), place.randn(2, 4)
    with torch.enable_grad():
        held = [g(x).sum() for _ in range(3)]
        assert heard == []
        held[-1].backward()
    assert heard == [pytest.approx(float(x.sum()) * 4, rel=1e-3, abs=1e-3)]
    assert g.report().replays == 2


def test_training_steps_replay(place: Any) -> None:
    model = place.module(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    twin = place.module(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    twin.load_state_dict(model.state_dict())
    g = place.capture(model, backward=True)
    with torch.enable_grad():
        steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin)]
        for _ in range(6):
            x, y = place.randn(16, 4), place.randn(16, 1)
            losses = []
            for function, step in ((g, steps[0]), (twin, steps[1])):
                step.zero_grad()
                given = x.clone().requires_grad_()
                loss = ((function(given) - y) ** 2).mean()
                loss.backward()
                step.step()
                losses.append((float(loss.detach()), given.grad))
            assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)
            assert torch.allclose(losses[0][1], losses[1][1], atol=1e-6)
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(p, q, atol=1e-6)
    assert g.report().replays == 5
    assert g.report().graphs[0].checks == 2


def test_gradients_may_be_cleared_between_forward_and_backward(place: Any) -> None:
    model = place.module(torch.nn.Linear(4, 1))
    g = place.capture(model, backward=True)
    with torch.enable_grad():
        model(place.randn(8, 4)).sum().backward()  # so that there are gradients already when it is captured
        for _ in range(4):
            x = place.randn(8, 4)
            loss = g(x).sum()
            model.zero_grad()
            loss.backward()
            assert torch.allclose(model.weight.grad, x.sum(0, keepdim=True), atol=1e-5)
    assert g.report().replays == 3


def test_a_backward_that_comes_too_late_is_told(place: Any) -> None:
    model = place.module(torch.nn.Linear(4, 4))
    g, x = place.capture(model, backward=True), place.randn(2, 4)
    with torch.enable_grad():
        g(x)
        late = g(x)
        g(x)
        with pytest.raises(CaptureError, match="backward of a captured call came after a later call"):
            late.sum().backward()


def test_without_gradients_a_training_capture_is_an_ordinary_one(place: Any) -> None:
    model = place.module(torch.nn.Linear(4, 4))
    g, x = place.capture(model, backward=True), place.randn(2, 4)
    for _ in range(3):
        assert torch.equal(g(x), model(x))
    assert g.report().replays == 2


def test_deterministic_algorithms_have_a_graph_of_their_own(place: Any) -> None:
    g, x = place.capture(lambda x: x * 2), place.randn(4)
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
