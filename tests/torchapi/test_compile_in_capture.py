"""During a capture compiles are refused, and the random number state can be read."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import installed_torch

from rocsolid.errors import CompileInCaptureError
from rocsolid.model.release import compare
from rocsolid.torchapi import name_probes
from rocsolid.torchapi.graphs import capture_state

pytestmark = pytest.mark.torch


@pytest.fixture
def device() -> Iterator[str]:
    import torch

    torch._dynamo.reset()
    yield "cuda" if torch.cuda.is_available() else "cpu"
    torch._dynamo.reset()


def test_a_refused_compile_names_the_fix(device: str) -> None:
    import torch

    fn = torch.compile(lambda x: x * 2 + 1, backend="eager")
    x = torch.ones(2, device=device)
    with (
        pytest.raises(CompileInCaptureError, match="call the compiled function once before the capture") as error,
        capture_state.compiles_refused(),
    ):
        fn(x)
    assert error.value.__cause__ is not None
    assert fn(x).tolist() == [3.0, 3.0]  # outside it compiles
    with capture_state.compiles_refused():
        assert fn(x).tolist() == [3.0, 3.0]  # and then runs inside


def test_other_errors_are_raised_unchanged(device: str) -> None:
    del device
    with pytest.raises(RuntimeError, match="mine"), capture_state.compiles_refused():
        raise RuntimeError("mine")  # noqa: EM101 - a test


def test_torch_cuda_graph_refuses_compiles_until_undone_where_torch_does_not() -> None:
    from torch.cuda import graphs

    plain = graphs.graph.__enter__, graphs.graph.__exit__
    undo = capture_state.refuse_compiles_in_captures()
    replaced = graphs.graph.__enter__ is not plain[0], graphs.graph.__exit__ is not plain[1]
    # Torch itself refuses them from 2.14 on, and from 2.15 on it leaves the stream of a failed capture.
    assert replaced == (compare(installed_torch(), "2.13") <= 0, compare(installed_torch(), "2.14") <= 0)
    undo()
    assert (graphs.graph.__enter__, graphs.graph.__exit__) == plain


def test_rng_reads_return_the_saved_state_where_reading_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in torch up to 2.9, where reading the state during a capture raises."""
    import torch

    state = {"raises": False}

    def get(_device: Any = "cuda") -> Any:
        if state["raises"]:
            msg = "Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"
            raise RuntimeError(msg)
        return torch.arange(16, dtype=torch.uint8)

    written: list[Any] = []
    for module in (torch.cuda, torch.cuda.random):
        monkeypatch.setattr(module, "get_rng_state", get)
        monkeypatch.setattr(module, "set_rng_state", lambda new, _device="cuda": written.append(new))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(capture_state, "_reading_raises", lambda _torch: True)
    with capture_state.rng_state_frozen():
        state["raises"] = True
        read = torch.cuda.get_rng_state()
        assert torch.equal(read, torch.arange(16, dtype=torch.uint8))
        assert torch.equal(torch.cuda.random.get_rng_state(0), read)
        torch.cuda.set_rng_state(read)
    assert written == []
    assert torch.cuda.get_rng_state is get


def test_from_torch_2_10_on_rng_functions_are_not_replaced() -> None:
    import torch

    before = torch.cuda.get_rng_state
    with capture_state.rng_state_frozen():
        assert torch.cuda.get_rng_state is before


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # torch's warnings about settings we do not touch
def test_a_compile_in_a_gpu_capture_is_refused_and_the_next_capture_works() -> None:
    import torch
    from tests.support import make_env

    from rocsolid.catalog.profiles import resolve
    from rocsolid.model.platform import Platform
    from rocsolid.runtime.guard import Guard

    fn = torch.compile(lambda x: torch.relu(x) * 2)
    x = torch.ones(8, device="cuda")
    with Guard(resolve("safe", make_env(Platform.ROCM))), torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        # From 2.14 on, this is torch's own error.
        with pytest.raises((CompileInCaptureError, RuntimeError), match="compile"), torch.cuda.graph(graph):
            fn(x)
        assert (
            torch.cuda.current_stream() == torch.cuda.default_stream()
        )  # where torch itself leaves the capture stream
        fn(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fn(x)
        graph.replay()
        torch.cuda.synchronize()
        assert y.tolist() == [2.0] * 8


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # torch's warnings about settings we do not touch
@pytest.mark.parametrize("how", ["mode", "backend"])
def test_no_graph_is_captured_under_a_rocm_plan(how: str) -> None:
    """On a GPU: count the captures that Inductor begins."""
    import torch
    from tests.support import make_env

    from rocsolid.catalog.profiles import resolve
    from rocsolid.model.platform import Platform
    from rocsolid.runtime.guard import Guard

    torch._dynamo.reset()
    begun: list[int] = []
    plain = torch.cuda.CUDAGraph.capture_begin

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun.append(1)
        return plain(self, *args, **kwargs)

    torch.cuda.CUDAGraph.capture_begin = counting
    try:
        x = torch.ones(64, 64, device="cuda")

        def run() -> Any:
            given = {"mode": "reduce-overhead"} if how == "mode" else {"backend": "cudagraphs"}
            fn = torch.compile(lambda x: torch.sin(x @ x) + 1, **given)
            with torch.no_grad():
                for _ in range(3):
                    fn(x)

        run()
        assert begun  # without the guard it captures
        begun.clear()
        torch._dynamo.reset()
        with Guard(resolve("safe", make_env(Platform.ROCM))) as guard:
            run()
        assert not begun
        assert guard.interventions
    finally:
        torch.cuda.CUDAGraph.capture_begin = plain
        torch._dynamo.reset()


@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_guards_around_a_guard_refuse_compiles_once_and_leave_the_compiler_as_it_was(others: int) -> None:
    import torch

    if compare(installed_torch(), "2.14") >= 0:
        pytest.skip(f"torch {installed_torch()} refuses compiles in captures itself")
    undo = [capture_state.refuse_compiles_in_captures() for _ in range(others)]
    try:
        refused, streams_left = name_probes._in_graph_block.__wrapped__()  # it has a guard of its own
    finally:
        for one in reversed(undo):
            one()
    torch._dynamo.reset()
    assert (refused, streams_left) == (True, 1)
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2, "compiles are still refused"
