"""What a dispatch mode learns about operators."""

from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.torchapi.dispatch import DispatchMode, run_decomposed

pytestmark = pytest.mark.torch


class Names(DispatchMode):
    """Collects the operators that have a kernel of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            out = run_decomposed(func, args, kwargs)
        if out is NotImplemented:
            self.names.append(func.name())
            out = func(*args, **kwargs)
        return out


def test_inference_mode_runs_the_same_operators_as_no_grad() -> None:
    seen = []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), Names() as names:
            x, ids = torch.ones(3, 4), torch.arange(3)
            x.sum().item()
            torch.einsum("ij,kj->ik", x, x).flatten().chunk(2)
            torch.nn.functional.linear(x.t().contiguous(), x.t()).to(torch.float64)
            torch.nn.functional.one_hot(ids, 4)  # the compiler has another decomposition of it
        seen.append(names.names)
    assert seen[0] == seen[1]
    assert "aten::_local_scalar_dense" in seen[0]
