"""Every program runs under `torch.no_grad()` and under `torch.inference_mode()`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from tests.programs.support import Comparison, seed

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other libraries warn about themselves and each other."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.torch)


@pytest.fixture(params=["no_grad", "inference_mode"])
def mode(request: pytest.FixtureRequest) -> Any:
    return getattr(torch, request.param)


@pytest.fixture
def compare(request: pytest.FixtureRequest, mode: Any) -> Iterator[Comparison]:
    seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    comparison = Comparison(name=request.node.name, mode=mode)
    yield comparison
    torch.set_num_threads(threads)
    comparison.row("different" if comparison.differences else "equal")
