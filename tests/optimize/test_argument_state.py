"""`rs.optimize` with arguments that hold state, such as a KV cache: every run gets the same state, and the caller's is unchanged."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome

pytest.importorskip("torch")
import torch

from rocsolid.optimize import optimized
from rocsolid.optimize.argument_state import ArgumentState
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.progressive import Progressive

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Cache:
    """A plain object: torch does not know how to flatten it."""

    def __init__(self) -> None:
        self.keys = torch.zeros(8, 4)
        self.length = 0
        self.history: list[Any] = []

    def append(self, x: Any) -> Any:
        self.keys[self.length] = x
        self.length += 1
        self.history.append(self.length)
        return self.keys


def attend(x: Any, cache: Cache) -> Any:
    return cache.append(x).sum(0) + x


def read_only(x: Any, cache: Cache) -> Any:
    return x * 2 + cache.keys[0]


def forgets_to_write(x: Any, cache: Cache) -> Any:
    keys = cache.keys.clone()
    keys[cache.length] = x
    return keys.sum(0) + x


def optimize_with(monkeypatch: pytest.MonkeyPatch, model: Any, other: Any, example: Any) -> Any:
    monkeypatch.setattr(
        optimized, "available_forms", lambda *_, **__: {Form.EAGER: lambda: model, Form.COMPILED: lambda: other}
    )
    return rs.optimize(model, example)


def outcome(report: Any, form: Form) -> Any:
    return next(result for result in report.forms if result.form is form)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("function", [attend, read_only])
def test_an_object_as_argument_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, function: Any, *, named: bool
) -> None:
    cache, x = Cache(), torch.ones(4)
    cache.append(x)
    keys, before, history = cache.keys, cache.keys.clone(), list(cache.history)

    example = {"x": x, "cache": cache} if named else (x, cache)
    fast = optimize_with(monkeypatch, function, function, example)

    assert cache.keys is keys
    assert torch.equal(keys, before)
    assert (cache.length, cache.history) == (1, history)
    report = fast.report()
    assert outcome(report, Form.COMPILED).outcome is not FormOutcome.WRONG
    assert outcome(report, Form.EAGER).timing is not None
    result = fast(x, cache)
    assert torch.equal(result, x * (3 if function is attend else 1) + (0 if function is attend else 2) * x)
    assert cache.length == (2 if function is attend else 1)


def test_a_compiled_form_with_an_object_as_argument() -> None:
    cache, x = Cache(), torch.ones(4)

    report = rs.optimize(attend, (x, cache)).report()

    assert outcome(report, Form.COMPILED).outcome in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN)
    assert cache.length == 0
    assert not cache.keys.any()


def test_a_form_that_does_not_write_to_the_object_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    report = optimize_with(monkeypatch, attend, forgets_to_write, (torch.ones(4), Cache())).report()

    assert report.chosen is Form.EAGER
    assert outcome(report, Form.COMPILED).outcome is FormOutcome.WRONG
    assert outcome(report, Form.COMPILED).why == "it does not write to the same arguments as eager"


def test_tensors_that_the_model_writes_to_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(x: Any, total: Any) -> Any:
        total.add_(x)
        return total * 2

    x, total = torch.ones(4), torch.zeros(4)
    report = optimize_with(monkeypatch, count, count, (x, total)).report()

    assert not total.any()
    assert outcome(report, Form.COMPILED).relative_error == 0
    with torch.inference_mode():
        inference_total = torch.zeros(4)
        optimize_with(monkeypatch, count, count, (x, inference_total))
        assert not inference_total.any()


def test_eager_is_kept_with_a_reason_if_it_does_not_repeat_its_results(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = iter(range(1000))

    def different(x: Any) -> Any:
        return x * next(calls)

    with caplog.at_level(logging.WARNING, "rocsolid"):
        fast = optimize_with(monkeypatch, different, lambda x: x, torch.ones(4))
    report = fast.report()

    assert report.chosen is Form.EAGER
    assert report.why.startswith(
        "a second eager call with the same example returns other results (two eager runs on the "
    )
    assert report.why in caplog.text
    assert "no form can be compared with eager" in str(report)
    assert fast(torch.ones(4)) is not None

    def consumes(x: Any, numbers: Any) -> Any:
        return x * next(numbers)

    why = optimize_with(monkeypatch, consumes, consumes, (torch.ones(4), iter([2.0]))).report().why
    assert why.startswith("a second eager call with the same example fails (StopIteration")


def test_the_background_thread_of_progressive_uses_copies() -> None:
    cache, x = Cache(), torch.ones(4)
    threads: set[int] = set()

    def model(x: Any, cache: Any) -> Any:
        if cache is original:
            threads.add(threading.get_ident())
        return attend(x, cache)

    original = cache
    fast = Progressive(
        model, [Example((x, cache), {})], profile="fast", compiled=lambda: model, capture=None, trial=None
    )
    assert fast.wait(60)
    assert not threads
    assert cache.length == 0
    assert fast.report().why


def test_an_argument_that_cannot_be_copied_is_named() -> None:
    cache = Cache()
    cache.lock = threading.Lock()  # type: ignore[attr-defined]

    with pytest.raises(UsageError) as error:
        rs.optimize(attend, {"x": torch.ones(4), "cache": cache}, progressive=True)

    first, *_ = str(error.value).splitlines()
    assert first.startswith("argument `cache` (")
    assert first.endswith("Cache) cannot be copied: cannot pickle '_thread.lock' object")
    assert "fix: use progressive=False" in str(error.value)


def test_state_of_containers_and_nested_objects_is_restored() -> None:
    inner = Cache()
    arguments: Any = ({"a": [1, {2}], "cache": inner, "tied": inner}, (inner,))
    state = ArgumentState(arguments)
    state.restore()
    assert not state.changes_seen

    kept = inner.keys
    arguments[0]["new"] = 1
    arguments[0]["a"][1].add(3)
    arguments[0]["a"].append(4)
    inner.keys = torch.ones(2)
    kept.add_(1)
    inner.extra = 5  # type: ignore[attr-defined]
    state.restore()

    assert state.changes_seen
    assert arguments[0] == {"a": [1, {2}], "cache": inner, "tied": inner}
    assert inner.keys is kept
    assert not kept.any()
    assert not hasattr(inner, "extra")
