"""Values from NumPy and Python that become tensors inside a captured function: a replay uses the present value, or there is none."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
import numpy as np
import torch

pytestmark = pytest.mark.torch


class AddsArray(torch.nn.Module):  # type: ignore[misc]
    """Adds a tensor that is made from an array or a number in every call."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.array = np.ones(4, dtype=np.float32)
        self.step = 1.0
        self.make = make

    def forward(self, x: Any) -> Any:
        return x + self.make(self).to(x.device)


COPIES: dict[str, Callable[[Any], Any]] = {
    "from_numpy": lambda module: torch.from_numpy(module.array),
    "as_tensor": lambda module: torch.as_tensor(module.array),
    "asarray": lambda module: torch.asarray(module.array),
    "tensor": lambda module: torch.tensor(module.array),
    "computed array": lambda module: torch.from_numpy(module.array * 2),
    "one element": lambda module: torch.as_tensor(module.array[:1]),
    "one computed element": lambda module: torch.as_tensor(np.sin(module.array[:1])),
    "tensor of one element": lambda module: torch.tensor(module.array[:1]),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_a_tensor_made_from_an_array_is_refused(target: Any, make: Callable[[Any], Any]) -> None:
    module, x = AddsArray(make), target.randn(4)
    captured = target.capture(module)
    for _ in range(3):
        assert torch.equal(captured(x), module(x))
        module.array += 5
    module.array = module.array * 3
    assert torch.equal(captured(x), module(x))
    (refusal,) = captured.report().refusals
    assert refusal.reason.value in ("host copy", *(["host sync"] if target.backend == "device" else []))


@pytest.mark.parametrize("make", [lambda module: torch.tensor(module.step), lambda module: torch.tensor([module.step])])
def test_a_number_that_changes_is_captured_again(make: Callable[[Any], Any]) -> None:
    from rocsolid.api.capture import capture

    module, x = AddsArray(make), torch.randn(4)
    captured = capture(module, backend="record")
    for step in (1.0, 1.0, 2.0, 2.0):
        module.step = step
        assert torch.equal(captured(x), module(x))
    assert captured.report().captures == 2
    assert captured.report().replays == 2


def test_a_number_of_an_array_that_changes_is_captured_again(target: Any) -> None:
    module, x = AddsArray(lambda module: torch.tensor([float(module.array[0])])), target.randn(4)
    captured = target.capture(module)
    for change in (0, 0, 5, 0):
        module.array += change
        assert torch.equal(captured(x), module(x))
    assert captured.report().replays == 2


SHARED: dict[str, Callable[[Any], Any]] = {
    "frombuffer": lambda module: torch.frombuffer(module.array, dtype=torch.float32),
    "from_dlpack": lambda module: torch.from_dlpack(module.array),
}


@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_a_tensor_that_shares_memory_with_an_array_has_its_present_values(make: Callable[[Any], Any]) -> None:
    from rocsolid.api.capture import capture

    module, x = AddsArray(make), torch.randn(4)
    captured = capture(module, backend="record")
    for _ in range(3):
        assert torch.equal(captured(x), module(x))
        module.array += 5


UNWATCHED: dict[str, Callable[[Any], Any]] = {
    **SHARED,
    "tensor of a float": lambda module: torch.tensor(float(module.array[0])),
    "as_tensor of a scalar": lambda module: torch.as_tensor(np.sin(module.array[0])),
}


@pytest.mark.parametrize("make", UNWATCHED.values(), ids=UNWATCHED)
def test_a_replaced_array_invalidates_the_graph(make: Callable[[Any], Any]) -> None:
    from rocsolid.api.capture import capture

    module, x = AddsArray(make), torch.randn(4)
    captured = capture(module, backend="record")
    for _ in range(3):
        assert torch.equal(captured(x), module(x))
        module.array = module.array * 3
