"""A random program that is captured returns what its eager twin returns, whatever happens between the calls.

    pytest tests/runtime/capture/test_state_machine.py -s
    CAPTURE_MACHINE_STEPS=50000 pytest tests/runtime/capture/test_state_machine.py -s
    CAPTURE_MACHINE_DEVICE=cuda CAPTURE_MACHINE_STEPS=2000 pytest tests/runtime/capture/test_state_machine.py -s

A failure prints the shortest program that hypothesis found: how it is built, the calls, and the changes in between.
"""

import collections
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")
import numpy as np
import torch
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.runtime.capture import programs

import rocsolid as rs

DEVICE = os.environ.get("CAPTURE_MACHINE_DEVICE", "cpu")
SEED = os.environ.get("CAPTURE_MACHINE_SEED")  # a number: other programs than in CI
STEPS = int(os.environ.get("CAPTURE_MACHINE_STEPS", "5000"))
STEPS_PER_PROGRAM = 12
INVALIDATE = "captured.invalidate()"
MODES = ("no_grad", "inference_mode", "enable_grad", "autocast", "default dtype float64")

pytestmark = [pytest.mark.torch, *([] if DEVICE == "cpu" else [pytest.mark.gpu])]
tally: collections.Counter[str] = collections.Counter()


class Signature(NamedTuple):
    """How a call is made."""

    rows: int = 2
    dtype: str = "float32"
    mode: str = "no_grad"


class Outcome(NamedTuple):
    """What a call returned or raised, and what it left behind."""

    result: Any
    raised: str
    x: Any
    drawn: Any
    state: dict[str, Any]
    replaced: dict[str, bool]


@contextmanager
def calling_mode(mode: str) -> Iterator[None]:
    """Set the mode for one call, in the thread that makes it."""
    contexts: dict[str, Callable[[], Any]] = {
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
        "enable_grad": torch.enable_grad,
        "autocast": lambda: torch.autocast(DEVICE, torch.bfloat16),
    }
    if mode in contexts:
        with torch.no_grad(), contexts[mode]():
            yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


def run(fn: Any, program: Any, signature: Signature, seed: int, *, in_thread: bool) -> Outcome:
    """Call the program, or its captured form, once."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(signature.rows, programs.WIDTH, generator=generator, dtype=torch.float64)
    x = x.to(getattr(torch, signature.dtype)).to(DEVICE)
    before = program.state()
    # torch.manual_seed formats a stack trace for every backend that is not there.
    torch.default_generator.manual_seed(seed)
    if DEVICE != "cpu":
        torch.cuda.manual_seed(seed)
    done: dict[str, Any] = {}

    def call() -> None:
        with calling_mode(signature.mode):
            try:
                done["result"] = fn(x, **program.arguments())
            except Exception as error:  # noqa: BLE001 - eager has to raise the same
                done["raised"] = type(error).__name__
                done["message"] = str(error)

    if in_thread:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    else:
        call()
    after = program.state()
    return Outcome(
        result=done.get("result"),
        raised=done.get("raised", ""),
        x=x,
        drawn=torch.rand(2, device=DEVICE),
        state=after,
        replaced={path: before.get(path) is not value for path, value in after.items()},
    )


def difference(name: str, got: Any, expected: Any) -> str:
    """How two values differ; empty if they do not."""
    if type(got).__qualname__ != type(expected).__qualname__:
        return f"{name} is of type {type(got).__qualname__}, expected {type(expected).__qualname__}"
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(name, got, expected)
    if isinstance(expected, torch.Generator):
        same = torch.equal(got.get_state(), expected.get_state())
        return "" if same else f"{name} is in another state than after eager"
    if isinstance(expected, (tuple, list)) and len(got) == len(expected):
        pairs = enumerate(zip(got, expected, strict=True))
        return next(filter(None, (difference(f"{name}[{i}]", a, b) for i, (a, b) in pairs)), "")
    if isinstance(expected, dict) and list(got) == list(expected):
        return next(filter(None, (difference(f"{name}[{k!r}]", got[k], expected[k]) for k in expected)), "")
    same = bool((got == expected) if not hasattr(expected, "tolist") else got.tolist() == expected.tolist())
    return "" if same else f"{name} is {got!r}, expected {expected!r}"


def _tensor_difference(name: str, got: Any, expected: Any) -> str:
    facts = ("dtype", "shape", "requires_grad", "device")
    for fact in facts:
        if getattr(got, fact) != getattr(expected, fact):
            return f"{name}.{fact} is {getattr(got, fact)}, expected {getattr(expected, fact)}"
    if torch.equal(got, expected):
        return ""
    coarse = expected.dtype in {torch.bfloat16, torch.float16}
    got, expected = got.detach().double(), expected.detach().double()
    if torch.allclose(got, expected, rtol=2e-2 if coarse else 1e-4, atol=1e-6, equal_nan=True):
        return ""
    return f"{name} is {got.tolist()}, expected {expected.tolist()}"


def state_difference(got: dict[str, Any], expected: dict[str, Any]) -> str:
    """How the Python-side state of two programs differs; empty if it does not."""
    if list(got) != list(expected):
        missing, extra = [key for key in expected if key not in got], [key for key in got if key not in expected]
        return f"state: missing {missing}, unexpected {extra}, or in another order"
    plain = (*programs._LEAVES, torch.Tensor, torch.Generator, np.ndarray)
    for path, value in expected.items():
        if isinstance(value, plain) and (found := difference(path, got[path], value)):
            return found
    return ""


def parts(kinds: Any, places: Any = tuple(programs.PLACES)) -> Any:
    return st.tuples(st.sampled_from(list(places)), st.sampled_from(list(kinds))).map(": ".join)


class CaptureMachine(RuleBasedStateMachine):
    """Builds a program twice, captures one, and does the same to both."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = 0
        self.last = Signature()
        self.kept: collections.deque[tuple[Any, Any]] = collections.deque(maxlen=3)
        self.captured: Any = None

    @initialize(
        host=st.sampled_from(list(programs.HOSTS)),
        pure=st.lists(parts(programs.PURE), min_size=1, max_size=3),
        effects=st.one_of(*[st.just([])] * 5, st.lists(parts(programs.EFFECTS), min_size=1, max_size=1)),
        result=st.sampled_from(list(programs.RESULTS)),
        verify=st.sampled_from(["off", "first"]),
        warmups=st.sampled_from([1, 3]),
        max_graphs=st.sampled_from([8, 2]),
    )
    def build(
        self, *, host: str, pure: list[str], effects: list[str], result: str, verify: str, warmups: int, max_graphs: int
    ) -> None:
        recipe = programs.Recipe(host=host, parts=(*effects, *pure), result=result, device=DEVICE)
        self.program, self.twin = programs.Program(recipe), programs.Program(recipe)
        self.captured = rs.capture(
            self.program.host.fn,
            backend="record" if DEVICE == "cpu" else "device",
            verify=verify,
            warmups=warmups,
            max_graphs=max_graphs,
            static=self.program.static(),
            generators=self.program.generators(),
        )
        tally["programs"] += 1

    @rule(
        rows=st.sampled_from([2, 3, 1]),
        dtype=st.sampled_from(["float32", "float32", "float64"]),
        mode=st.sampled_from(["no_grad"] * 4 + list(MODES)),
        in_thread=st.sampled_from([False] * 5 + [True]),
        times=st.sampled_from([2, 1, 3, 4]),
    )
    def call(self, *, rows: int, dtype: str, mode: str, in_thread: bool, times: int) -> None:
        self.last = Signature(rows, dtype, mode)
        tally["steps"] += 1
        for _ in range(times):
            self.compare(in_thread=in_thread)

    @rule(
        edit=st.runner().flatmap(lambda machine: st.sampled_from([*machine.program.edits(), INVALIDATE])),
        n=st.integers(0, 3),
        then_call=st.sampled_from([2, 3, 4, 0]),
    )
    def edit(self, *, edit: str, n: int, then_call: int) -> None:
        tally["steps"] += 1
        raised = []
        if edit == INVALIDATE:
            self.captured.invalidate()
        for program in (self.twin, self.program) if edit != INVALIDATE else ():
            try:
                program.edit(edit, n)
            except (
                RuntimeError,
                LookupError,
            ) as error:  # an in-place update of an inference tensor, an index out of range
                raised.append(str(error))
        assert len(raised) in {0, 2}, f"only one of the programs can be changed: {raised}"
        for _ in range(then_call):
            self.compare()

    def compare(self, *, in_thread: bool = False) -> None:
        self.seed += 1
        tally["calls"] += 1
        expected = run(self.twin.host.fn, self.twin, self.last, self.seed, in_thread=in_thread)
        got = run(self.captured, self.program, self.last, self.seed, in_thread=in_thread)
        assert got.raised == expected.raised, (
            f"raised {got.raised or 'nothing'}, expected {expected.raised or 'nothing'}"
        )
        problem = (
            difference("result", got.result, expected.result)
            or difference("x", got.x, expected.x)
            or difference("the next random numbers", got.drawn, expected.drawn)
            or state_difference(got.state, expected.state)
        )
        assert not problem, problem
        for path, replaced in expected.replaced.items():
            assert got.replaced[path] == replaced, f"{path} is {'the old' if replaced else 'another'} object"
        for mine, eager in self.kept:
            problem = difference("an earlier result", mine, eager)
            assert not problem, problem
        self.kept.append((got.result, expected.result))

    def teardown(self) -> None:
        if self.captured is not None:
            report = self.captured.report()
            tally["replays"] += report.replays
            tally["captures"] += report.captures
            tally["eager"] += sum(report.eager_calls.values())
            self.captured.close()


def test_captured_programs_return_what_eager_returns(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "rocsolid")  # every edit logs an invalidated graph
    tally.clear()
    start = time.monotonic()
    if SEED is not None:
        seed(int(SEED))(CaptureMachine)
    limits = settings(
        max_examples=max(1, STEPS // (STEPS_PER_PROGRAM - 2)),  # building is a step, and some programs end early
        stateful_step_count=STEPS_PER_PROGRAM,
        deadline=None,
        database=None,
        derandomize=SEED is None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(CaptureMachine, settings=limits)
    finally:
        seconds = time.monotonic() - start
        with capsys.disabled():
            print(  # noqa: T201
                f"\n{tally['steps']} steps in {seconds:.0f} s: {tally['programs']} programs, {tally['calls']} calls: "
                f"{tally['replays']} replays, {tally['captures']} captures, {tally['eager']} eager calls"
            )
    assert tally["replays"] >= 0.25 * tally["calls"], "too few replays: the test did not test graphs"
