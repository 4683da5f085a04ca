"""A GPU that is not there: its tensors are on the CPU, and its graphs are recordings that replay their operators. It can be told to lie."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from rocsolid.runtime.capture.backends.record import Recording
from rocsolid.torchapi.graphs import driver_api


class OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Puts on the CPU what a program puts on the GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        given = dict(kwargs or {})
        return func(*args, **{**given, **({"device": "cpu"} if given.get("device") == "cuda" else {})})


class Graph:
    """A recording, replayed in order."""

    def __init__(self, gpu: "FakeGpu") -> None:
        self.gpu = gpu
        self.steps: list[tuple[str, Callable[[], object]]] = []
        gpu.graphs.add(self)

    def replay(self) -> None:
        """Run the operators again; a lie leaves the last one out."""
        for _, again in self.steps[: -1 if self.gpu.lies else None]:
            again()


class Stream:
    """A stream that only knows whether it captures."""

    cuda_stream = 0

    def __init__(self, gpu: "FakeGpu") -> None:
        self.gpu = gpu

    def wait_stream(self, _: "Stream") -> None:
        """All work is done."""

    def wait_event(self, _: Any) -> None:
        """In a capture, the event is of another stream."""
        if self.gpu.capturing and not self.gpu.lies:
            msg = "dependency created on uncaptured work in another stream"
            raise RuntimeError(msg)


class FakeGpu:
    """What the programs use of `torch.cuda`. With `lies`, every part of it is wrong."""

    def __init__(self) -> None:
        self.lies = self.capturing = False
        self.leaked = 0
        self.graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self.stream = self.home = Stream(self)

    @contextmanager
    def graph(self, graph: Graph, stream: Stream | None = None, **_: Any) -> Iterator[None]:
        """Record operators; a failed capture restores the stream and its memory, if this is no lie."""
        before, self.stream, self.capturing = self.stream, stream or Stream(self), True
        try:
            with Recording() as recording:
                yield
        except BaseException:
            self.leaked += 1024 * self.lies
            before = self.stream if self.lies else before
            raise
        finally:
            self.stream, self.capturing = before, False
        graph.steps = recording.steps

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        """Use a stream."""
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def rng_state(self) -> torch.Tensor:
        """Raise in a capture, as a lie."""
        if self.capturing and self.lies:
            msg = "Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"
            raise RuntimeError(msg)
        return torch.zeros(1)

    def driver_function(self, _: str) -> Any:
        """The query of a stream's state: 0 is not capturing, 2 is invalidated."""

        def query(_: Any, state: Any) -> int:
            state._obj.value = 2 * self.lies
            return 0

        return query

    def compile(self, function: Any, **given: Any) -> Any:
        """Return the function itself, or as a lie one with other results."""
        if not self.lies or given.get("backend") == "aot_eager":
            return function

        def wrong(*inputs: Any) -> Any:
            got = function(*inputs)
            return tuple(x * 1.5 for x in got) if isinstance(got, tuple) else got * 1.5

        return wrong


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """Replace `torch.cuda` and `torch.compile`."""
    gpu = FakeGpu()
    names = {
        "Stream": lambda: Stream(gpu),
        "Event": lambda: SimpleNamespace(record=lambda _: None),
        "CUDAGraph": lambda: Graph(gpu),
        "graph": gpu.graph,
        "stream": gpu.on_stream,
        "current_stream": lambda: gpu.stream,
        "set_stream": lambda stream: setattr(gpu, "stream", stream),
        "get_rng_state": gpu.rng_state,
        "memory_reserved": lambda: 4096 * len(gpu.graphs) * (not gpu.lies) + gpu.leaked,
        "graph_pool_handle": lambda: None,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "device_count": lambda: 1,
    }
    for name, value in names.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "compile", gpu.compile)
    monkeypatch.setattr(driver_api, "driver_function", gpu.driver_function)
    with OnCpu():
        yield gpu
