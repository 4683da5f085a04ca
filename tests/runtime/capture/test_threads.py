"""Many threads, functions inside functions, several regions in one graph, and pieces around what cannot be captured."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def test_eight_threads_two_shapes_one_function(place: Any) -> None:
    model = place.module(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)))
    g = place.capture(model)
    begin = threading.Barrier(8)

    def work(seed: int) -> int:
        random = torch.Generator(device=place.device).manual_seed(seed)
        begin.wait()
        wrong = 0
        apart = torch.cuda.stream(torch.cuda.Stream()) if place.backend == "device" else nullcontext()
        with torch.no_grad(), apart:
            for number in range(50):
                x = torch.randn(2 + number % 2, 8, generator=random, device=place.device)
                wrong += not torch.allclose(g(x), model(x), atol=1e-6)
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert g.report().captures == 2
    assert g.report().replays == 8 * 50 - 2


def test_a_captured_function_inside_another_takes_part_as_itself(place: Any) -> None:
    inner = place.capture(lambda x: x + 1)
    outer = place.capture(lambda x: inner(inner(x)) * 2)
    x = place.randn(3)
    for _ in range(3):
        assert torch.equal(outer(x), (x + 2) * 2)
    assert outer.report().replays == 2
    assert inner.report().captures == 0
    inner(x)
    assert torch.equal(inner(x), x + 1)


def test_several_models_and_a_loop_are_one_graph(place: Any) -> None:
    encode, step = place.module(torch.nn.Linear(4, 4)), place.module(torch.nn.Linear(4, 4))

    def denoise(x: Any, noise: Any) -> Any:
        context = encode(x)
        for number in range(10):
            noise = noise + 0.1 * step(noise + context) * (number / 10)
        return noise

    g = place.capture(denoise)
    for _ in range(3):
        x, noise = place.randn(2, 4), place.randn(2, 4)
        assert torch.allclose(g(x, noise), denoise(x, noise), atol=1e-6)
    assert len(g.report().graphs) == 1
    assert (g.report().graphs[0].nodes or 100) > 30


class Router(torch.nn.Module):  # type: ignore[misc]
    """A branch on values: no graph can hold it."""

    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum().item() > 0 else x * -3


class Pipeline(torch.nn.Module):  # type: ignore[misc]
    """A router between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.router, self.after = torch.nn.Linear(4, 4), Router(), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.after(self.router(self.before(x).relu() - 0.3)) + x


def test_pieces_run_eagerly_between_graphs(place: Any) -> None:
    model = place.module(Pipeline())
    whole = place.capture(model)
    g = place.capture(model, pieces=["router"])
    signs = set()
    for _ in range(20):
        x = place.randn(2, 4)
        assert torch.allclose(g(x), model(x), atol=1e-6)
        whole(x)
        signs.add(float((model.before(x).relu() - 0.3).sum()) > 0)
    assert signs == {True, False}, "both branches were taken"
    assert g.report().replays == 19
    assert whole.report().replays == 0

    with pytest.raises(
        UsageError, match="pieces names 'rooter', which is no module of the function; there are before, router, after"
    ):
        place.capture(model, pieces=["rooter"])(place.randn(2, 4))


def test_captures_can_be_held_off(place: Any) -> None:
    g, x, order = place.capture(lambda x: x * 2), place.randn(3), []

    def other() -> None:
        with torch.no_grad():
            g(x)
        order.append("captured")

    with rs.hold_off_captures():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(timeout=0.2)
        order.append("released")
    thread.join()
    assert order == ["released", "captured"]


@pytest.mark.gpu
def test_calls_are_ordered_by_streams_and_never_wait() -> None:
    """A slow producer on one stream, the call on a second, the consumer on a third."""
    g = rs.capture(lambda x: x * 2)
    x = torch.zeros(1000, device="cuda")
    g(x)
    torch.cuda.synchronize()
    producer, caller, consumer = (torch.cuda.Stream() for _ in range(3))
    for number in range(1, 20):
        with torch.cuda.stream(producer):
            torch.cuda._sleep(2_000_000)
            x.fill_(number)
        caller.wait_stream(producer)
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.cuda.stream(caller if number % 2 else consumer):
                if number % 2 == 0:
                    consumer.wait_stream(producer)
                y = g(x)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        consumer.wait_stream(caller)
        with torch.cuda.stream(consumer):
            z = y + 1
        torch.cuda.synchronize()
        assert float(z[0]) == 2 * number + 1
        producer.wait_stream(consumer)


@pytest.mark.gpu
def test_a_pinned_source_may_be_overwritten_right_after_the_call() -> None:
    def upload(x: Any) -> Any:
        torch.cuda._sleep(1_000_000)
        return x.to("cuda", non_blocking=True) * 2 + anchor

    anchor = torch.zeros(1000, device="cuda")
    g = rs.capture(lambda x, y: upload(x) + y)
    x, y = torch.zeros(1000, pin_memory=True), torch.zeros(1000, device="cuda")
    g(x, y)
    results = []
    for number in range(1, 20):
        x.fill_(number)
        results.append(g(x, y))
        x.fill_(-1)
    torch.cuda.synchronize()
    assert [float(result[0]) for result in results] == [2.0 * number for number in range(1, 20)]
    assert g.report().replays == 19


@pytest.mark.gpu
def test_a_call_inside_somebody_elses_capture_takes_part_as_itself() -> None:
    g, x = rs.capture(lambda x: x * 2), torch.ones(3, device="cuda")
    g(x)
    g(x)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=side):
        y = g(x) + 1
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [11.0] * 3


@pytest.mark.gpu
def test_after_a_failed_capture_everything_is_as_before() -> None:
    def unjoined(x: Any) -> Any:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return x * 2

    x = torch.ones(1 << 20, device="cuda")
    warm = rs.capture(lambda x: x + torch.rand_like(x))
    warm(x)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    stream, free = torch.cuda.current_stream(), torch.cuda.mem_get_info()[0]
    for function in (unjoined, lambda x: x * x.sum().item()):
        g = rs.capture(function)
        g(x)
        assert g.report().refusals, "the capture cannot have gone well"
        assert torch.cuda.current_stream() == stream
        assert not torch.cuda.is_current_stream_capturing()
        torch.rand(3, device="cuda")
        warm(x)
        g.close()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert free - torch.cuda.mem_get_info()[0] < 16 * 2**20
