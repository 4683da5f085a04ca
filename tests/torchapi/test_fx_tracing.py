"""A model that one thread calls works while another thread traces with torch.fx, as Inductor does."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.torchapi.fx_tracing import traces_in_one_thread

pytestmark = pytest.mark.torch


def _call_during_trace(call: Any) -> Any:
    """The result of a call in another thread, in the middle of a trace."""
    results = []

    class Traced(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            with ThreadPoolExecutor(1) as pool:
                results.append(pool.submit(call).result())
            return self.linear(x)

    traced = torch.fx.symbolic_trace(Traced())
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_module", "output"]
    return results[0]


def test_module_and_compiled_code_run_while_another_thread_traces() -> None:
    linear, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    compiled = torch.compile(linear, backend="eager")
    compiled(x)
    with pytest.raises(NameError, match="not installed as a submodule"):
        _call_during_trace(lambda: linear(x))
    before = torch.nn.Module.__call__
    with traces_in_one_thread():
        assert torch.equal(_call_during_trace(lambda: linear(x)), linear(x))
        assert torch.equal(_call_during_trace(lambda: compiled(x)), linear(x))
    assert torch.nn.Module.__call__ is before
    assert getattr(sys.modules["torch.fx._symbolic_trace"], "_is_fx_tracing_flag", False) is False


def test_patch_is_undone_by_the_last_thread() -> None:
    patcher = sys.modules["torch.fx._symbolic_trace"]._Patcher
    before = patcher.patch_method
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(traces_in_one_thread())
    second.enter_context(traces_in_one_thread())
    first.close()
    assert patcher.patch_method is not before
    second.close()
    assert patcher.patch_method is before
