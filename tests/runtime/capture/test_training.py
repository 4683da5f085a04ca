"""Training steps: `backward=True` captures forward and backward."""

from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import CaptureError, UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def test_parameter_hooks_run_only_in_the_callers_backward(target: Any) -> None:
    model, seen = target.module(torch.nn.Linear(4, 4)), []
    model.weight.register_hook(lambda gradient: seen.append(float(gradient.sum())))
    g, x = target.capture(model, backward=True), target.randn(2, 4)
    with torch.enable_grad():
        held = [g(x).sum() for _ in range(3)]
        assert seen == []
        held[-1].backward()
    assert seen == [pytest.approx(float(x.sum()) * 4, rel=1e-3, abs=1e-3)]
    assert g.report().replays == 2


def test_training_steps_replay(target: Any) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    twin = target.module(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    twin.load_state_dict(model.state_dict())
    g = target.capture(model, backward=True)
    with torch.enable_grad():
        steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin)]
        for _ in range(6):
            x, y = target.randn(16, 4), target.randn(16, 1)
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


def test_zero_grad_between_forward_and_backward(target: Any) -> None:
    model = target.module(torch.nn.Linear(4, 1))
    g = target.capture(model, backward=True)
    with torch.enable_grad():
        model(target.randn(8, 4)).sum().backward()  # so that parameters have gradients when the call is captured
        for _ in range(4):
            x = target.randn(8, 4)
            loss = g(x).sum()
            model.zero_grad()
            loss.backward()
            assert torch.allclose(model.weight.grad, x.sum(0, keepdim=True), atol=1e-5)
    assert g.report().replays == 3


def test_a_backward_after_a_later_call_raises(target: Any) -> None:
    model = target.module(torch.nn.Linear(4, 4))
    g, x = target.capture(model, backward=True), target.randn(2, 4)
    with torch.enable_grad():
        g(x)
        late = g(x)
        g(x)
        with pytest.raises(CaptureError, match=r"backward\(\) of a captured call ran after a later call"):
            late.sum().backward()


def test_backward_true_without_grad_captures_inference(target: Any) -> None:
    model = target.module(torch.nn.Linear(4, 4))
    g, x = target.capture(model, backward=True), target.randn(2, 4)
    for _ in range(3):
        assert torch.equal(g(x), model(x))
    assert g.report().replays == 2


def test_the_periodic_check_compares_training_steps_too(target: Any) -> None:
    model = target.module(torch.nn.Linear(4, 1))
    g = target.capture(model, backward=True, verify=rs.every(2))
    with torch.enable_grad():
        for _ in range(7):
            x = target.randn(8, 4)
            model.zero_grad()
            g(x).sum().backward()
            assert torch.allclose(model.weight.grad, x.sum(0, keepdim=True), atol=1e-5)
    assert (g.report().checks, g.report().replays) == (2 + 3, 3)


def test_the_periodic_check_finds_a_broken_backward(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.runtime.capture import training

    model = target.module(torch.nn.Linear(4, 1))
    g, x = target.capture(model, backward=True, verify=rs.every(2)), target.randn(8, 4)
    plain = training.TrainingStep.replay_backward

    def broken(*args: Any) -> list[Any]:
        return [None if gradient is None else gradient + 1 for gradient in plain(*args)]

    with torch.enable_grad():
        g(x).sum().backward()
        monkeypatch.setattr(training.TrainingStep, "replay_backward", broken)
        g(x)
        model.zero_grad()
        g(x).sum().backward()
    assert torch.allclose(model.weight.grad, x.sum(0, keepdim=True), atol=1e-5), "the check returns eager's result"
    assert g.report().check_failures == 1
    assert g.report().graphs == ()
    assert "gradient 0: relative error" in g.report().refusals[0].message


def test_the_periodic_check_changes_state_once(target: Any) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))).train()
    g = target.capture(model, backward=True, verify=rs.every(2))
    with torch.enable_grad():
        for _ in range(6):
            g(target.randn(8, 4)).sum().backward()
    assert int(model[1].num_batches_tracked) == 6
    assert not g.report().refusals


@pytest.mark.parametrize("outputs", ["alias", "out"])
def test_backward_requires_cloned_outputs(outputs: str) -> None:
    with pytest.raises(UsageError, match='backward=True requires outputs="clone"'):
        rs.capture(torch.nn.Linear(4, 1), backward=True, outputs=outputs)


def test_a_training_replay_is_ordered_while_the_lock_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.runtime.capture.backends import record

    locked: list[bool] = []

    class Ordering(record.HostOrdering):
        def wait_for_replays(self) -> bool:
            locked.append(self.lock.locked())
            return True

    monkeypatch.setattr(record.RecordBackend, "ordering", lambda _: Ordering())
    g = rs.capture(torch.nn.Linear(4, 1), backward=True, backend="record")
    with torch.enable_grad():
        for _ in range(3):
            g(torch.ones(2, 4)).sum().backward()
    assert locked
    assert all(locked)


def test_writes_to_arguments_are_copied_back_in_training(target: Any) -> None:
    model, cache = target.module(torch.nn.Linear(4, 1)), torch.zeros(3, device=target.device)

    def step(x: Any, cache: Any) -> Any:
        cache.add_(1)
        return model(x)

    g = target.capture(step, backward=True, verify=rs.every(3))
    with torch.enable_grad():
        for number in range(1, 6):
            g(target.randn(2, 4), cache).sum().backward()
            assert cache.tolist() == [number] * 3
    assert g.report().graphs[0].mutates == ("cache",)
    assert g.report().replays == 3


def test_python_side_effects_are_refused_in_training(target: Any) -> None:
    model, calls = target.module(torch.nn.Linear(4, 1)), []

    def step(x: Any) -> Any:
        calls.append(1)
        return model(x)

    g = target.capture(step, backward=True)
    with torch.enable_grad():
        for number in range(1, 4):
            g(target.randn(2, 4)).sum().backward()
            assert len(calls) == number
    assert g.report().refusals[0].reason.value == "side effect"


def test_a_backward_after_the_graph_is_closed_raises(target: Any) -> None:
    model = target.module(torch.nn.Linear(4, 1))
    g, x = target.capture(model, backward=True), target.randn(2, 4)
    with torch.enable_grad():
        g(x)
        loss = g(x).sum()
        g.close()
        with pytest.raises(CaptureError, match="after its graph was invalidated, evicted or closed"):
            loss.backward()
