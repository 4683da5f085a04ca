"""Triton's hash is there when torch asks for it."""

import time

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
from rocsolid.torchapi import compile_keys
from rocsolid.torchapi.compile_keys import hash_ahead

pytestmark = pytest.mark.torch


def test_whoever_asks_later_finds_the_answer() -> None:
    key = compile_keys._TRITON_KEY.reach()
    key.cache_clear()
    thread = hash_ahead()
    assert thread is not None
    assert thread.daemon, "a program that ends does not wait for it"
    thread.join()
    assert key.cache_info().currsize == 1
    asked = time.thread_time()
    assert key()
    assert time.thread_time() - asked < 0.01


def test_no_triton_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising:
        @staticmethod
        def reach() -> object:
            def missing() -> None:
                msg = "triton package is not available"
                raise RuntimeError(msg)

            return missing

    monkeypatch.setattr(compile_keys, "_TRITON_KEY", Raising())
    thread = hash_ahead()
    assert thread is not None
    thread.join()
