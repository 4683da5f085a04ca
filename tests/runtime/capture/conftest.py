"""Every capture test runs on the record backend and, where there is one, on a GPU."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
import torch


class Target(NamedTuple):
    """The backend and device that a test captures on."""

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
def target(request: pytest.FixtureRequest) -> Target:
    return Target(request.param, "cpu" if request.param == "record" else "cuda")


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield
