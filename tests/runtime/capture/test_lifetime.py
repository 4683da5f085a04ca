"""How many graphs there are, when they go, and what stays."""

import gc
import weakref
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import CaptureError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def double(x: Any) -> Any:
    return x * 2


def test_the_least_recently_used_goes_first(place: Any) -> None:
    g = place.capture(double, max_graphs=2)
    a, b, c = (place.randn(n) for n in (2, 3, 4))
    for x in (a, b, a, c, a, a, b):
        assert torch.equal(g(x), x * 2)
    report = g.report()
    # a b (a) c evicts b, (a) (a), b evicts c
    assert (report.captures, report.evictions, report.replays) == (4, 2, 3)
    assert sorted(graph.key["argument 'x'"][:10] for graph in report.graphs) == ["float32[2]", "float32[3]"]


def test_the_least_recently_used_size_of_a_bucket_goes_first(place: Any) -> None:
    """All sizes of one argument share a road; a hit on it must still count for the graph it leads to."""
    g = place.capture(double, max_graphs=2, buckets={"x": rs.Bucket(dim=0, sizes=[4, 8, 16])})
    for length in (3, 7, 3, 2, 15, 3):
        x = place.randn(length)
        assert torch.equal(g(x), x * 2)
    report = g.report()
    assert (report.captures, report.evictions, report.replays) == (3, 1, 3)


def test_buffers_of_a_graph_that_goes_are_freed(place: Any) -> None:
    g = place.capture(double, max_graphs=1)
    buffer = weakref.ref(g.inputs(place.randn(3))[0].untyped_storage())
    gc.disable()
    try:
        g(place.randn(4))
        assert buffer() is None
    finally:
        gc.enable()


def test_memory_has_a_budget(place: Any) -> None:
    small, large = place.randn(1000), place.randn(1_000_000)
    g = place.capture(double, memory_budget_bytes=20_000 if place.backend == "record" else 64 * 2**20)
    assert torch.equal(g(small), small * 2)
    assert torch.equal(g(small), small * 2)
    if place.backend == "record":
        assert torch.equal(g(large), large * 2)
        assert "memory_budget_bytes allows 0.0 MiB" in g.report().refusals[0].detail
        for n in (999, 998, 997):
            g(place.randn(n))
        assert g.report().evictions > 0
        assert g.report().bytes <= 20_000


def test_results_outlive_the_graph(place: Any) -> None:
    g, x = place.capture(double), place.randn(3)
    g(x)
    held = g(x)
    del g
    gc.collect()
    assert torch.equal(held, x * 2)


def test_closing_twice_and_calling_after(place: Any) -> None:
    g, x = place.capture(double), place.randn(3)
    g(x)
    g.close()
    g.close()
    assert torch.equal(g(x), x * 2)
    assert g.report().eager_calls["closed"] == 1
    assert g.report().graphs == ()


def test_invalidating_captures_anew(place: Any) -> None:
    g, x = place.capture(double), place.randn(3)
    g(x)
    g.invalidate("lora swapped")
    assert torch.equal(g(x), x * 2)
    assert g.report().invalidated == ("lora swapped",)
    assert g.report().captures == 2


def test_a_module_that_holds_its_own_capture_is_freed_without_the_collector(place: Any) -> None:
    module = place.module(torch.nn.Linear(3, 3))
    module.forward = place.capture(module.forward)
    x = place.randn(2, 3)
    for _ in range(3):
        module(x)
    captured = weakref.ref(module.forward)
    entry = weakref.ref(next(iter(module.forward._store)))
    module_ref = weakref.ref(module)
    gc.collect()
    gc.disable()
    try:
        del module
        assert module_ref() is None
        assert captured() is None
        assert entry() is None
    finally:
        gc.enable()


def test_a_module_that_holds_its_own_capture_is_watched_itself(place: Any) -> None:
    class Scaled(torch.nn.Module):  # type: ignore[misc]
        scale = 1.0

        def forward(self, x: Any) -> Any:
            return x * self.scale * (2 if self.training else 3)

    module = Scaled().eval()
    module.scale = 5.0
    module.forward = place.capture(module.forward)
    x = torch.ones(3, device=place.device)
    for _ in range(3):
        assert torch.equal(module(x), x * 15)
    module.train()
    assert torch.equal(module(x), x * 10)
    assert torch.equal(module(x), x * 10)
    module.scale = 7.0
    assert torch.equal(module(x), x * 14)


def test_a_captured_method_of_a_module_that_nobody_else_holds(place: Any) -> None:
    g, x = place.capture(place.module(torch.nn.Linear(3, 3)).forward), place.randn(2, 3)
    assert torch.equal(g(x), g(x))


def test_no_memory_is_lost_over_many_captures(place: Any) -> None:
    cycles = 50 if place.backend == "record" else 500
    x = place.randn(64, 64)
    used = []
    for number in range(cycles):
        g = place.capture(double, verify="off", warmups=1)
        g(x)
        assert torch.equal(g(x), x * 2)
        g.close()
        if place.backend == "device" and number % 100 == 99:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            used.append(torch.cuda.mem_get_info()[0])
    if used:
        assert used[1] - used[-1] < 32 * 2**20, used


def test_graphs_replayed_in_any_order_do_not_disturb_each_other(place: Any) -> None:
    """One pool for all is what was seen to corrupt results on ROCm."""
    random = torch.Generator().manual_seed(0)
    layers = [torch.nn.Linear(32, 32) for _ in range(6)]
    model = place.module(torch.nn.Sequential(*layers))
    sizes = [1, 3, 8, 17, 33, 64, 100, 128]
    for pool in ("shared", "per-graph"):
        g = place.capture(model, max_graphs=len(sizes), pool=pool)
        g.warm([((place.randn(n, 32),), {}) for n in sizes])
        for _ in range(40):
            n = sizes[int(torch.randint(len(sizes), (1,), generator=random))]
            x = place.randn(n, 32)
            assert torch.allclose(g(x), model(x), atol=1e-5)
        assert g.report().replays == 40


def test_inputs_of_a_call_that_runs_eagerly_are_refused(place: Any) -> None:
    g = place.capture(lambda x: x * x.sum().item())
    with pytest.raises(CaptureError, match="there is no graph for this call"):
        g.inputs(place.randn(3))


@pytest.mark.gpu
def test_a_graph_keeps_its_workspace_when_all_are_freed() -> None:
    """As torch's own graphs do whenever they capture."""
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).cuda().bfloat16()
    g, x = rs.capture(model), torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    g(x)
    want = g(x)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.full((2**22,), 7.0, device="cuda") for _ in range(16)]  # whoever gets the memory now
    for _ in range(3):
        assert torch.equal(g(x), want)
    torch.cuda.synchronize()
    assert all(bool((other == 7).all()) for other in others)
    other, y = rs.capture(model), torch.randn(32, 256, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(other(y), model(y))
    assert torch.equal(other(y), model(y))
    assert torch.equal(g(x), want)


@pytest.mark.gpu
def test_two_captured_functions_share_no_stream_and_streams_are_used_again() -> None:
    from rocsolid.runtime.capture.lanes import lane_for

    class User:
        pass

    users = [User() for _ in range(40)]
    lanes = [lane_for(user, 0) for user in users]
    assert len({lane.stream.cuda_stream for lane in lanes}) == len(lanes)
    users.clear()
    last = User()
    assert lane_for(last, 0) in lanes
