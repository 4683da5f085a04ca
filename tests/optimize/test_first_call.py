"""`rs.optimize(model)` without an example: the first call is the example."""

import threading
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

import rocsolid as rs
from rocsolid.model.form import Form

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):  # type: ignore[misc]
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        self.calls += 1
        return self.linear(x) * scale


@pytest.fixture
def net() -> Any:
    return Net().eval()


def test_first_call_is_the_example(net: Any) -> None:
    fast = rs.optimize(net, budget_s=0)
    assert isinstance(fast, Net)
    assert "waiting for the first call" in fast.report().why
    x = torch.randn(2, 4)
    with torch.no_grad():
        want = net.linear(x) * 2
        first, second = fast(x, scale=2.0), fast(x, scale=2.0)
    assert torch.equal(first, want)
    torch.testing.assert_close(second, want)
    report = fast.report()
    assert report.example_count == 1
    assert report.forms[0].form is Form.EAGER
    assert "waiting" not in report.why


def test_function_without_an_example() -> None:
    fast = rs.optimize(torch.sin, budget_s=0)
    assert torch.equal(fast(torch.ones(3)), torch.sin(torch.ones(3)))
    assert fast.report().example_count == 1


def test_first_call_may_change_its_arguments() -> None:
    def count(x: Any) -> Any:
        return x.add_(1)

    fast = rs.optimize(count, budget_s=0)
    x = torch.zeros(2)
    assert fast(x) is x
    assert x.tolist() == [1, 1]
    fast(x)
    assert x.tolist() == [2, 2]


def test_training_waits_for_the_first_call_in_eval_mode(net: Any) -> None:
    fast = rs.optimize(net.train(), budget_s=0)
    fast(torch.randn(2, 4)).sum().backward()
    assert "waiting for the first call" in fast.report().why
    fast.eval()
    with torch.no_grad():
        fast(torch.randn(2, 4))
    assert fast.report().example_count == 1


def test_call_that_cannot_be_an_example_runs_in_eager(caplog: pytest.LogCaptureFixture) -> None:
    fast = rs.optimize(lambda x, lock: x * 2 if lock else x, budget_s=0)
    lock = threading.Lock()
    assert fast(torch.ones(2), lock).tolist() == [2, 2]
    assert fast(torch.ones(2), lock).tolist() == [2, 2]
    assert "argument `lock` (_thread.lock) cannot be copied" in fast.report().why
    assert sum("could not be optimized for its first call" in line for line in caplog.messages) == 1


def test_error_of_the_first_call_is_the_users(net: Any) -> None:
    fast = rs.optimize(net, budget_s=0)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fast(torch.randn(2, 5))
    with torch.no_grad():
        fast(torch.randn(2, 4))
    assert fast.report().example_count == 1  # a call that failed is no example


def test_seal_applies_after_the_first_call(net: Any) -> None:
    fast = rs.optimize(net, budget_s=0)
    fast.seal(otherwise="eager")
    with torch.no_grad():
        assert fast(torch.randn(2, 4)).shape == (2, 4)
        assert fast(torch.randn(3, 4)).shape == (3, 4)
    assert not fast.wait(0) or fast.report().example_count == 1


def test_progressive_without_an_example(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocsolid.api.optimize._compile_in_child", lambda *_: "not in this test")
    fast = rs.optimize(net, progressive=True)
    assert not fast.wait(0)
    with torch.no_grad():
        fast(torch.randn(2, 4))
    assert fast.wait(60)
    assert "not in this test" in fast.report().why
