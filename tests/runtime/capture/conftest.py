"""Every test of a capture runs on the tape and, where there is one, on a device."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
import torch


class Place(NamedTuple):
    """Where a test captures."""

    backend: str
    device: str

    def capture(self, fn: Callable[..., Any], **options: Any) -> Any:
        from rocsolid.api.capture import capture

        return capture(fn, backend=self.backend, **options)

    def randn(self, *shape: int, **kwargs: Any) -> Any:
        return torch.randn(*shape, device=self.device, **kwargs)

    def module(self, module: Any) -> Any:
        return module.to(self.device)


@pytest.fixture(params=["record", pytest.param("device", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(request.param, "cpu" if request.param == "record" else "cuda")


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield
