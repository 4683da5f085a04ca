"""`torch.cuda.is_current_stream_capturing` inside `reported_as_capturing`."""

import threading

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.torchapi.graphs.capture_state import reported_as_capturing

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


def test_torchs_own_code_gets_the_real_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    caller_globals = {"__name__": "torch.somewhere", "cuda": torch.cuda}
    with reported_as_capturing():
        assert not eval("cuda.is_current_stream_capturing()", caller_globals)  # noqa: S307 - our own text
