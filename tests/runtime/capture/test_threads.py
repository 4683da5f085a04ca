"""Threads, streams, and captured functions inside other captures."""

import gc
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest

import rocsolid as rs

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def test_eight_threads_call_one_function_with_two_shapes(target: Any) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)))
    g = target.capture(model)
    begin = threading.Barrier(8)

    def work(seed: int) -> int:
        random = torch.Generator(device=target.device).manual_seed(seed)
        begin.wait()
        wrong = 0
        apart = torch.cuda.stream(torch.cuda.Stream()) if target.backend == "device" else nullcontext()
        with torch.no_grad(), apart:
            for number in range(50):
                x = torch.randn(2 + number % 2, 8, generator=random, device=target.device)
                wrong += not torch.allclose(g(x), model(x), atol=1e-6)
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert g.report().captures == 2
    assert g.report().replays == 8 * 50 - 2


def test_a_captured_function_inside_another_runs_as_a_plain_function(target: Any) -> None:
    inner = target.capture(lambda x: x + 1)
    outer = target.capture(lambda x: inner(inner(x)) * 2)
    x = target.randn(3)
    for _ in range(3):
        assert torch.equal(outer(x), (x + 2) * 2)
    assert outer.report().replays == 2
    assert inner.report().captures == 0
    inner(x)
    assert torch.equal(inner(x), x + 1)


def test_several_models_and_a_loop_become_one_graph(target: Any) -> None:
    encode, step = target.module(torch.nn.Linear(4, 4)), target.module(torch.nn.Linear(4, 4))

    def denoise(x: Any, noise: Any) -> Any:
        context = encode(x)
        for number in range(10):
            noise = noise + 0.1 * step(noise + context) * (number / 10)
        return noise

    g = target.capture(denoise)
    for _ in range(3):
        x, noise = target.randn(2, 4), target.randn(2, 4)
        assert torch.allclose(g(x, noise), denoise(x, noise), atol=1e-6)
    assert len(g.report().graphs) == 1
    assert (g.report().graphs[0].nodes or 100) > 30


def test_pause_captures_delays_a_capture_in_another_thread(target: Any) -> None:
    g, x, order = target.capture(lambda x: x * 2), target.randn(3), []

    def other() -> None:
        with torch.no_grad():
            g(x)
        order.append("captured")

    with rs.pause_captures():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(timeout=0.2)
        order.append("released")
    thread.join()
    assert order == ["released", "captured"]


@pytest.mark.gpu
def test_calls_on_several_streams_are_ordered_without_a_sync() -> None:
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
def test_a_pinned_input_may_be_overwritten_right_after_the_call() -> None:
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
def test_a_call_inside_another_capture_runs_as_a_plain_function() -> None:
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
def test_a_failed_capture_leaves_stream_rng_and_memory_unchanged() -> None:
    def unjoined(x: Any) -> Any:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return x * 2

    x = torch.ones(1 << 20, device="cuda")
    warm = rs.capture(lambda x: x + torch.rand_like(x))
    warm(x)
    stream = torch.cuda.current_stream()
    reserved = []  # in this process; others may use the same GPU
    for _ in range(6):
        for function in (unjoined, lambda x: x * x.sum().item()):
            g = rs.capture(function)
            g(x)
            assert g.report().refusals, "the capture cannot have gone well"
            assert torch.cuda.current_stream() == stream
            assert not torch.cuda.is_current_stream_capturing()
            torch.rand(3, device="cuda")
            warm(x)
            g.close()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    # The first rounds also allocate the workspaces of new streams, which the next captures use again.
    assert reserved[-1] - reserved[-2] < 16 * 2**20, reserved


def _wait_for_checks() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("rocsolid-check"):
            thread.join(30)


def test_a_check_in_the_background_returns_the_replay_and_compares_later(target: Any) -> None:
    threads = io.StringIO()  # not watched, as a list would be

    def double(x: Any) -> Any:
        threads.write(f"{threading.current_thread().name}\n")
        return x * 2

    g, x = target.capture(double, verify=rs.every(3, in_background=True)), target.randn(3)
    g(x)
    before = len(threads.getvalue().split())
    for _ in range(8):
        assert torch.equal(g(x), x * 2)
        x.add_(1)  # the check has its own copy
        _wait_for_checks()

    assert threads.getvalue().split()[before:] == ["rocsolid-check-double"] * 2
    report = g.report()
    assert (report.checks, report.check_failures, report.replays) == (2 + 2, 0, 8)


def test_a_failed_check_in_the_background_invalidates_the_graph(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.runtime.capture.verification import LaterCheck

    failures: list[Any] = []
    verify = rs.every(2, in_background=True, on_failure=failures.append)
    g, x = target.capture(lambda x: x * 2, verify=verify, on_error="raise"), target.randn(3)
    g(x)
    plain = LaterCheck.keep_result
    monkeypatch.setattr(LaterCheck, "keep_result", lambda check, result: plain(check, result + 1))
    g(x)
    g(x)
    _wait_for_checks()

    assert (g.report().check_failures, len(failures), g.report().graphs) == (1, 1, ())
    with pytest.raises(rs.CaptureError, match="wrong results"):
        g(x)


def test_a_check_in_the_background_is_dropped_if_a_weight_was_written_meanwhile(target: Any) -> None:
    running, written = threading.Event(), threading.Event()
    model = torch.nn.Linear(4, 4).to(target.device)

    def waits(*_: Any) -> None:
        if threading.current_thread().name.startswith("rocsolid-check"):
            running.set()
            assert written.wait(30)

    model.register_forward_pre_hook(waits)
    g, x = target.capture(model, verify=rs.every(1, in_background=True)), target.randn(2, 4)
    with torch.no_grad():
        g(x)
        before = g.report().checks
        g(x)
        assert running.wait(30)
        model.weight.add_(1)
        written.set()
        _wait_for_checks()

    assert (g.report().checks, g.report().check_failures) == (before, 0)


def test_a_call_that_cannot_be_repeated_is_compared_at_once(target: Any) -> None:
    norm = torch.nn.BatchNorm1d(3).to(target.device)
    calls = {
        "writes": norm,
        "random": torch.nn.Dropout(),
    }
    for function in calls.values():
        g, x = target.capture(function, verify=rs.every(2, in_background=True)), target.randn(8, 3)
        with torch.no_grad():
            for _ in range(6):
                g(x)
                assert not any(thread.name.startswith("rocsolid-check") for thread in threading.enumerate())
        assert g.report().checks > 2, g.report()
        assert not g.report().check_failures


def test_a_call_whose_writes_can_be_undone_is_not_repeated_in_the_background(target: Any) -> None:
    cache, length = torch.zeros(16, device=target.device), torch.zeros(1, dtype=torch.long, device=target.device)

    def append(x: Any) -> Any:
        cache.index_copy_(0, length, x)
        length.add_(1)
        return cache.sum()

    g = target.capture(append, verify=rs.every(2, in_background=True)).with_undo(lambda: length.sub_(1))
    for number in range(6):
        assert g(torch.ones(1, device=target.device)).item() == number + 1
        assert not any(thread.name.startswith("rocsolid-check") for thread in threading.enumerate())
    assert length.item() == 6


@pytest.mark.gpu
def test_another_thread_may_wait_for_the_gpu_during_a_capture() -> None:
    """Without help, `torch.cuda.synchronize()` raises in that thread, and the capture fails."""
    x, ended = torch.ones(4, device="cuda"), threading.Event()

    def slow(x: Any) -> Any:
        time.sleep(0.05)
        return x * 2

    def wait() -> int:
        waits = 0
        while not ended.is_set():
            torch.cuda.synchronize()
            waits += 1
        return waits

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait)
        captured = rs.capture(slow)
        for _ in range(3):
            assert torch.equal(captured(x), x * 2)
        ended.set()
        assert waits.result() > 1
    assert captured.report().replays == 2
