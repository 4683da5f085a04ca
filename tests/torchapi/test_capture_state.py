"""Code that asks whether it is being captured, told so for a while."""

import threading

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.torchapi.graphs.capture_state import reported_as_capturing

pytestmark = pytest.mark.torch


def test_each_thread_is_told_for_itself_and_in_the_end_torch_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", plain := lambda: False)
    entered, left = threading.Event(), threading.Event()
    heard: list[bool] = []

    def other() -> None:
        heard.append(torch.cuda.is_current_stream_capturing())
        with reported_as_capturing():
            entered.set()
            left.wait(10)
            heard.append(torch.cuda.is_current_stream_capturing())

    thread = threading.Thread(target=other)
    with reported_as_capturing():
        thread.start()
        entered.wait(10)
        with reported_as_capturing():
            assert torch.cuda.is_current_stream_capturing()
        assert torch.cuda.is_current_stream_capturing()
    assert not torch.cuda.is_current_stream_capturing()  # while the other thread is still told
    left.set()
    thread.join()
    assert heard == [False, True]
    assert torch.cuda.is_current_stream_capturing is plain


def test_torch_itself_hears_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    asking = {"__name__": "torch.somewhere", "cuda": torch.cuda}
    with reported_as_capturing():
        assert not eval("cuda.is_current_stream_capturing()", asking)  # noqa: S307 - our own text
