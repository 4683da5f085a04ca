"""Tensors that a call makes from Python numbers are kept on the device; other copies from the CPU are refused."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

import rocsolid as rs
from rocsolid.model.capture_report import Reason

pytestmark = pytest.mark.torch


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """Makes a tensor from a list that can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = [1.0, 2.0, 3.0]

    def forward(self, x: Any) -> Any:
        return x * torch.tensor(self.scale, device=x.device)


def written_in_place(x: Any) -> Any:
    counts = torch.tensor([1.0, 2.0, 3.0], device=x.device)
    counts += x[0]
    return counts


def masked(x: Any) -> Any:
    return torch.where(x > 0, torch.tensor(0.0, device=x.device, dtype=x.dtype), torch.tensor([-1.0], device=x.device))


def assigned(x: Any) -> Any:
    y = x.clone()
    y[:, [0, 2]] = 5.0
    y[x.long() % 4, [0, 1, 2]] = 7
    y[y > 6] = 8.0
    return y


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "as_tensor": lambda x: x + torch.as_tensor([[1, 2, 3]], dtype=x.dtype, device=x.device),
    "asarray": lambda x: x + torch.asarray([1.0, 2.0, 3.0], device=x.device),
    "new_tensor": lambda x: x + x.new_tensor([1, 2, 3]),
    "two constants": lambda x: x * torch.tensor(2.0, device=x.device) + torch.tensor([1.0], device=x.device),
    "to": lambda x: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device),
    "to with dtype": lambda x: x + torch.tensor([1, 2, 3]).to(device=x.device, dtype=torch.float64),
    "list index": lambda x: x[:, [-1, 0]],
    "list of rows": lambda x: x[[1, 0, 1]],
    "assigned": assigned,
    "masked": masked,
    "written in place": written_in_place,
    "by the shape": lambda x: x / torch.tensor(x.shape, device=x.device).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_constants_made_in_the_call_are_captured(name: str, target: Any) -> None:
    function = PROGRAMS[name]
    fast = target.capture(function)
    for seed in range(4):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).to(target.device)
        torch.testing.assert_close(fast(x), function(x))

    assert fast.report().replays == 3, fast.report()


def test_another_source_of_the_numbers_makes_another_graph(target: Any) -> None:
    model = Scaled()
    fast = target.capture(model)
    x = torch.randn(4, 3, device=target.device)
    for scale in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]):
        model.scale = scale
        for _ in range(3):
            torch.testing.assert_close(fast(x), x * torch.tensor(scale, device=target.device))
    model.scale[0] = 9.0
    torch.testing.assert_close(fast(x), x * torch.tensor([9.0, 5.0, 6.0], device=target.device))


def test_numbers_that_differ_in_every_run_are_refused_with_the_line() -> None:
    numbers = itertools.count()

    def function(x: Any, read: Any = lambda: float(str(next(numbers)))) -> Any:
        return x + torch.tensor([read(), 1.0, 2.0])

    fast = rs.capture(function, backend="record")
    for _ in range(3):
        fast(torch.ones(3))

    (refusal,) = fast.report().refusals
    assert refusal.reason in (Reason.HOST_COPY, Reason.SIDE_EFFECT)


def test_numbers_read_from_a_cpu_argument_are_not_kept(target: Any) -> None:
    def function(x: Any, numbers: Any) -> Any:
        kept = torch.zeros(3)
        kept += numbers
        return x + kept.to(x.device) + torch.tensor(numbers.tolist(), device=x.device)

    fast = target.capture(function)
    x = torch.ones(3, device=target.device)
    for value in range(4):
        numbers = torch.full((3,), float(value))
        torch.testing.assert_close(fast(x, numbers), function(x, numbers))


def test_a_cpu_constant_that_is_written_to_is_not_kept() -> None:
    from rocsolid.runtime.capture.host_constants import ConstantRecorder

    recorder = ConstantRecorder(torch.device("meta"))
    with recorder:
        tensor = torch.tensor([1.0, 2.0])
        tensor += 1
        tensor.to("meta")
        torch.tensor([1.0, 2.0]).to("meta")

    assert len(recorder.constants) == 1


def test_a_compiled_function_is_not_compiled_again() -> None:
    compiled = torch.compile(PROGRAMS["tensor"], backend="eager")
    fast = rs.capture(compiled, backend="record")
    x = torch.ones(4, 3)
    for _ in range(3):
        torch.testing.assert_close(fast(x), compiled(x))
