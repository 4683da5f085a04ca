"""Calls that a replay would not repeat run in eager: shared memory, active torch modes, results that the function keeps."""

import itertools
import random
from collections import deque
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch.utils.flop_counter import FlopCounterMode

pytestmark = pytest.mark.torch


def reasons(g: Any) -> set[str]:
    return {refusal.reason.value for refusal in g.report().refusals}


def test_arguments_that_share_memory_run_in_eager(target: Any) -> None:
    def add_to_first(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    g = target.capture(add_to_first)
    for _ in range(3):
        g(target.randn(4), target.randn(4))
    mine, twin = (torch.zeros(8, device=target.device) for _ in range(2))
    assert torch.equal(g(mine[:4], mine[2:6]), add_to_first(twin[:4], twin[2:6]))
    assert torch.equal(mine, twin)
    assert g.report().eager_calls["shared memory"] == 1


@pytest.mark.parametrize("first_apart", [False, True])
def test_an_argument_that_is_written_state_runs_in_eager(target: Any, first_apart: bool) -> None:  # noqa: FBT001
    total = torch.zeros(3, device=target.device)

    def accumulate(x: Any, previous: Any) -> Any:
        total.add_(1)
        return x + previous

    g, x = target.capture(accumulate), target.randn(3)
    if first_apart:
        for _ in range(2):
            g(x, target.randn(3))
    for _ in range(3):
        before = total.clone()
        assert torch.equal(g(x, total), x + before + 1)
        assert torch.equal(total, before + 1)


def test_a_dispatch_mode_sees_every_operator(target: Any) -> None:
    model = target.module(torch.nn.Linear(4, 4))
    g, x = target.capture(model), target.randn(2, 4)
    g(x)
    g(x)
    with FlopCounterMode(display=False) as counted:
        g(x)
    assert counted.get_total_flops() == 64
    assert reasons(g) == {"torch mode"}
    g(x)
    assert g.report().replays == 2


def test_a_transform_of_torch_func_runs_in_eager(target: Any) -> None:
    g, x = target.capture(lambda x: x * 2 + 1), target.randn(3, 4)
    for _ in range(3):
        assert torch.equal(torch.vmap(g)(x), x * 2 + 1)
    assert reasons(g) == {"torch mode"}


def test_each_default_device_has_its_own_graph(target: Any) -> None:
    g, x = target.capture(lambda x: x + torch.ones(4, device=None).to(x.device)), target.randn(4)
    if target.device == "cuda":
        pytest.skip("torch.ones without a device is on the CPU there, which no capture allows")
    g(x)
    g(x)
    with torch.device("meta"), pytest.raises((NotImplementedError, RuntimeError)):
        g(x)
    with torch.device("cpu"):
        g(x)
        assert torch.equal(g(x), x + 1)
    assert len(g.report().graphs) == 2


def test_a_list_that_the_function_keeps_is_returned_itself(target: Any) -> None:
    kept = [torch.zeros(2, device=target.device)]

    def add(x: Any) -> Any:
        kept[0].add_(x)
        return kept

    g = target.capture(add)
    assert all(g(target.randn(2)) is kept for _ in range(3))
    assert reasons(g) == {"unsupported result type"}


def test_a_changed_argument_is_refused_and_changed_once(target: Any) -> None:
    def remember(x: Any, seen: dict[str, Any]) -> Any:
        seen["last"] = x
        return x * 2

    g, x, seen = target.capture(remember), target.randn(3), {"last": target.randn(3)}
    for _ in range(3):
        g(x, seen)
        assert seen["last"] is x
        seen["last"] = target.randn(3)
    assert reasons(g) == {"side effect"}


def test_a_set_that_the_function_grows_grows_once_per_call(target: Any) -> None:
    def remember(x: Any, seen: set[int]) -> Any:
        seen.add(len(seen))
        return x * len(seen)

    g, x, seen = target.capture(remember), target.randn(3), {7}
    for number in range(2, 5):
        assert torch.equal(g(x, seen), x * number)
    assert seen == {7, 1, 2, 3}


def test_random_numbers_of_python_are_refused(target: Any) -> None:
    g, x = target.capture(lambda x: x * random.random()), target.randn(3)  # noqa: S311 - the case
    assert not torch.equal(g(x), g(x))
    assert "draws random numbers from Python's `random`" in g.report().refusals[0].message


@pytest.mark.parametrize("make", [lambda: iter(range(99)), itertools.count, lambda: (n for n in range(99))])
def test_an_iterator_is_advanced_once_per_call(target: Any, make: Any) -> None:
    numbers, twin = make(), make()
    g, x = target.capture(lambda x: x + next(numbers)), target.randn(3)
    for _ in range(4):
        assert torch.equal(g(x), x + next(twin))
    assert reasons(g) <= {"side effect", "reachable state"}


def test_a_value_that_changes_with_every_call_ends_in_eager(target: Any) -> None:
    class Counter:
        count = 0

    counter = Counter()
    g, x = target.capture(lambda x: x + counter.count), target.randn(3)
    for number in range(40):
        counter.count = number
        assert torch.equal(g(x), x + number)
    assert reasons(g) == {"changing state"}
    assert g.report().captures < 20


def test_too_many_items_to_check_are_refused_by_name(target: Any) -> None:
    table = deque(range(200_000))
    g, x = target.capture(lambda x: x + table[3]), target.randn(3)
    assert torch.equal(g(x), g(x))
    assert "among them `table`" in g.report().refusals[0].message


def test_an_object_that_cannot_be_inspected_is_refused_by_name(target: Any) -> None:
    class Strange:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            msg = "no"
            raise RuntimeError(msg)

    strange = Strange()
    g, x = target.capture(lambda x: x + (strange is None)), target.randn(3)
    assert torch.equal(g(x), g(x))
    assert "`strange`, whose attributes cannot be read (RuntimeError: no)" in g.report().refusals[0].message


def test_a_change_before_a_periodic_check_is_not_taken_for_a_wrong_result(target: Any) -> None:
    import rocsolid as rs

    factors = [2.0]
    g, x = target.capture(lambda x: x * factors[0], verify=rs.every(2)), target.randn(3)
    for number in range(12):
        factors[0] = float(number // 3)
        assert torch.equal(g(x), x * factors[0])
    assert not g.report().refusals
    assert len(g.report().invalidated) == 3


def test_random_numbers_drawn_elsewhere_do_not_invalidate(target: Any) -> None:
    own = random.Random(0)  # noqa: S311 - the case

    def scale(x: Any) -> Any:
        return x * (2 if own.VERSION else 3)

    g, x = target.capture(scale), target.randn(3)
    for _ in range(4):
        g(x)
        own.random()
    assert (g.report().replays, g.report().invalidated) == (3, ())
