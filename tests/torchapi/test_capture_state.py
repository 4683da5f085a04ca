"""What torch does during a capture: in this thread and in others."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.torchapi.graphs.capture_state import (
    device_waits_held_back,
    reported_as_capturing,
    reported_as_not_capturing,
)

pytestmark = pytest.mark.torch


def test_it_applies_per_thread_and_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", plain := lambda: False)
    entered, left = threading.Event(), threading.Event()
    seen: list[bool] = []

    def other() -> None:
        seen.append(torch.cuda.is_current_stream_capturing())
        with reported_as_capturing():
            entered.set()
            left.wait(10)
            seen.append(torch.cuda.is_current_stream_capturing())

    thread = threading.Thread(target=other)
    with reported_as_capturing():
        thread.start()
        entered.wait(10)
        with reported_as_capturing():
            assert torch.cuda.is_current_stream_capturing()
        assert torch.cuda.is_current_stream_capturing()
    assert not torch.cuda.is_current_stream_capturing()  # the other thread is still inside
    left.set()
    thread.join()
    assert seen == [False, True]
    assert torch.cuda.is_current_stream_capturing is plain


def test_a_block_that_is_not_reported_leaves_the_function_that_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", plain := lambda: False)

    def is_reported() -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    with reported_as_not_capturing():
        assert torch.cuda.is_current_stream_capturing is plain
    with reported_as_capturing(), reported_as_capturing():
        patched = torch.cuda.is_current_stream_capturing
        with reported_as_not_capturing(), reported_as_not_capturing():
            assert not is_reported()
            assert torch.cuda.is_current_stream_capturing is patched
        assert is_reported()
    assert torch.cuda.is_current_stream_capturing is plain


def test_torchs_own_code_gets_the_real_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    code = compile("torch.cuda.is_current_stream_capturing()", torch.__file__, "eval")
    with reported_as_capturing():
        assert not eval(code, {"torch": torch})  # noqa: S307 - our own text


def test_other_threads_wait_for_the_device_only_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: events.append("waited"))
    original = torch.cuda.synchronize
    with ThreadPoolExecutor(1) as pool:
        with device_waits_held_back():
            torch.cuda.synchronize()  # in this thread it is an error of the captured function, as without the block
            other = pool.submit(torch.cuda.synchronize)
            time.sleep(0.05)
            assert not other.done()
            events.append("ended")
        other.result(5)
    assert events == ["waited", "ended", "waited"]
    assert torch.cuda.synchronize is original


def test_the_block_begins_after_waits_that_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the other thread's call reaches the runtime during the capture."""
    events: list[str] = []
    began = threading.Event()

    def slow_wait(*_: object) -> None:
        began.set()
        time.sleep(0.05)
        events.append("waited")

    monkeypatch.setattr(torch.cuda, "synchronize", slow_wait)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.cuda.synchronize)
        began.wait(5)
        with device_waits_held_back():
            held = pool.submit(torch.cuda.synchronize)
            events.append("began")
            time.sleep(0.05)
        with device_waits_held_back():  # the held call runs now, and is waited for
            events.append("again")
        held.result(5)
    assert events == ["waited", "began", "waited", "again"]
