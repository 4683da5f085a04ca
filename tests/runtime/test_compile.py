"""`rs.compile`: the plan on the function, refusals, recompile budgets, deadlines, a trial in a child."""

import logging
import re
import threading
import time
import timeit
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, make_env, run_python, with_path

from rocsolid.catalog.profiles import resolve
from rocsolid.errors import CompileDeadlineError, PlanError, RecompileError
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel
from rocsolid.runtime.compiled import choose_options, compiled_with
from rocsolid.runtime.signature import differences, signature_of

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def plan(platform: Platform = Platform.ROCM, profile: str = "safe") -> Plan:
    return resolve(profile, make_env(platform))


def eager(graph: Any, _inputs: Any) -> Any:
    return graph.forward


def test_on_rocm_what_the_profile_insists_on_wins_and_the_rest_is_the_callers() -> None:
    chosen, refused = choose_options(plan(), "max-autotune", {"epilogue_fusion": False, "combo_kernels": True})

    assert chosen["max_autotune"] is False
    assert chosen["triton.cudagraphs"] is False
    assert chosen["coordinate_descent_tuning"] is True  # the mode's wish, and no danger
    assert chosen["epilogue_fusion"] is False
    assert chosen["combo_kernels"] is True
    assert {(r.setting, r.how) for r in refused} == {
        ("inductor.max_autotune", "mode='max-autotune'"),
        ("inductor.triton.cudagraphs", "mode='max-autotune'"),
    }


def test_on_cuda_the_callers_choices_stand() -> None:
    chosen, refused = choose_options(plan(Platform.CUDA), "reduce-overhead", {"max_autotune": True})

    assert (chosen["triton.cudagraphs"], chosen["max_autotune"]) == (True, True)
    assert refused == []


def test_options_that_this_torch_does_not_take_stay_out() -> None:
    chosen, _ = choose_options(plan(), None, None)

    assert "force_disable_caches" not in chosen  # an alias
    assert "freezing" not in chosen  # would have no effect as an option
    assert choose_options(plan(), None, {"nonsense": 1})[0]["nonsense"] == 1  # torch itself says what is wrong with it


def test_a_mode_in_a_plan_rides_on_the_function_and_says_nothing_to_other_backends() -> None:
    import torch

    mode = Decision(
        id="compile.mode", value="max-autotune-no-cudagraphs", channel=Channel.ARGUMENT, why="", profile="tune"
    )
    tuned = replace(plan(Platform.CUDA), decisions=(mode,))

    assert compiled_with(tuned, lambda x: x).rocsolid.options["max_autotune"] is True
    assert "max_autotune" not in compiled_with(tuned, lambda x: x, mode="default").rocsolid.options
    assert compiled_with(tuned, lambda x: x + 1, backend=eager)(torch.ones(1)) == 2  # it takes no mode


def test_a_module_stays_a_module_and_a_function_keeps_its_face() -> None:
    import torch

    module = torch.nn.Linear(4, 4)
    compiled = compiled_with(plan(), module, backend=eager)

    def doubled(x: Any, times: int = 2) -> Any:
        """Double it."""
        return x * times

    function = compiled_with(plan(), doubled, backend=eager)
    x = torch.ones(2, 4)

    assert isinstance(compiled, torch.nn.Module)
    assert compiled.rocsolid.plan == plan()
    assert torch.equal(compiled(x), module(x))
    assert dict(compiled.named_parameters())
    assert (function.__name__, function.__doc__) == ("doubled", "Double it.")
    assert torch.equal(function(x, times=3), x * 3)


def test_the_plan_reaches_a_worker_thread_with_inductor() -> None:
    """The values ride on the function: whoever compiles sees them."""
    import torch
    from torch._inductor import config, graph

    seen: list[tuple[bool, int]] = []
    plain = graph.GraphLowering.__init__

    def spy(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append((config.max_autotune, getattr(config, "compile_worker_wait_timeout", 900)))  # torch 2.12..
        plain(self, *args, **kwargs)

    number = time.time() % 1  # a program that no cache on disk knows
    fn = compiled_with(plan(), lambda x: torch.sin(x) * number, options={"max_autotune": True})
    graph.GraphLowering.__init__ = spy
    try:
        thread = threading.Thread(target=lambda: fn(torch.ones(3)))
        thread.start()
        thread.join()
    finally:
        graph.GraphLowering.__init__ = plain

    assert seen == [(False, 900)]
    assert fn.rocsolid.findings[0].code == "GRD001"


def test_dynamo_settings_are_scoped_to_the_compiling_call() -> None:
    import torch
    from torch._dynamo import config

    seen: list[int] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        seen.append(config.recompile_limit)
        return graph.forward

    config.recompile_limit = 77
    try:
        compiled_with(plan(), lambda x: x + 1, backend=backend)(torch.ones(2))
        assert seen == [8]
        assert config.recompile_limit == 77
    finally:
        config.recompile_limit = 8


def test_one_recompile_too_many_names_the_argument_and_both_values() -> None:
    import torch

    def fn(x: Any, scale: float = 1.0) -> Any:
        return x * scale

    compiled = compiled_with(plan(), fn, backend=eager, recompiles=1, dynamic=False)
    compiled(torch.ones(2, 3))
    compiled(torch.ones(2, 4))
    with pytest.raises(RecompileError) as error:
        compiled(torch.ones(5, 4))

    assert "its budget of 1 recompiles is used up" in str(error.value)
    assert "argument 'x': float32[2, 4] before, float32[5, 4] now" in str(error.value)


def test_a_sealed_function_compiles_no_more_and_goes_on_serving() -> None:
    import torch

    compiled = compiled_with(plan(), lambda x: x + 1, backend=eager)
    compiled(torch.ones(2))
    compiled.rocsolid.seal()

    assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
    with pytest.raises(RecompileError, match=r"it is sealed.*float32\[2\] before, float64\[2\] now"):
        compiled(torch.ones(2, dtype=torch.float64))


def test_graph_breaks_are_no_recompiles() -> None:
    import torch

    def broken(x: Any) -> Any:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = compiled_with(plan(), broken, backend=eager, recompiles=0)

    assert compiled(torch.ones(1)).tolist() == [4.0]


def test_signatures_tell_two_calls_apart() -> None:
    import torch

    one = signature_of((torch.ones(2, 3), {"a": [torch.ones(1)]}), {"flag": True}, ("x",))
    with torch.no_grad():
        other = signature_of((torch.ones(3, 2).t(), {"a": [torch.ones(1, dtype=torch.int64)]}), {"flag": 1}, ("x",))

    assert differences(one, other) == [
        "argument 'x': float32[2, 3] before, float32[2, 3] stride [1, 2] now",
        "argument 1['a'][0]: float32[1] before, int64[1] now",
        "argument 'flag': True before, 1 now",
        "grad mode: on before, off now",
    ]


def sleeping(_graph: Any, _inputs: Any) -> Any:
    while True:
        time.sleep(0.01)


def waiting(_graph: Any, _inputs: Any) -> Any:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # for ever, inside the interpreter's C code


@pytest.mark.parametrize("backend", [sleeping, waiting])
def test_a_compile_past_its_deadline_falls_back_to_eager(backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    compiled = compiled_with(plan(), lambda x: x * 3, backend=backend, deadline_s=1.0)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "rocsolid"):
        answer = compiled(torch.ones(2))

    assert answer.tolist() == [3.0, 3.0]
    assert 0.9 < time.monotonic() - started < 20  # and not for ever
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]  # from now on eagerly, at once
    texts = [r.getMessage() for r in caplog.records]
    assert any(" of 1 s: calling the backend" in text for text in texts)  # what it was doing
    assert any(
        "passed its deadline of 1 s" in text and "All stacks" in text and backend.__name__ in text for text in texts
    )


def test_in_a_worker_thread_too() -> None:
    import torch

    answers: list[Any] = []
    compiled = compiled_with(plan(), lambda x: x * 3, backend=sleeping, deadline_s=1.0)
    thread = threading.Thread(target=lambda: answers.append(compiled(torch.ones(1)).tolist()))
    thread.start()
    thread.join(10)

    assert answers == [[3.0]]


def test_with_fullgraph_the_deadline_is_an_error() -> None:
    import torch

    compiled = compiled_with(plan(), lambda x: x * 3, backend=sleeping, deadline_s=0.5, fullgraph=True)

    with pytest.raises(CompileDeadlineError, match="fullgraph=True leaves no way back to eager"):
        compiled(torch.ones(1))


def test_a_compile_in_time_is_left_alone_and_so_are_signals() -> None:
    import signal

    import torch

    from rocsolid.runtime.compile_deadline import _SIGNAL

    before = signal.getsignal(_SIGNAL)
    compiled = compiled_with(plan(), lambda x: x * 3, backend=eager, deadline_s=30)

    assert compiled(torch.ones(1)).tolist() == [3.0]
    assert signal.getsignal(_SIGNAL) == before


def test_the_guard_gives_every_compile_a_deadline() -> None:
    import torch

    from rocsolid.runtime.guard import Guard

    with Guard(None, deadline_s=0.7):
        assert torch.compile(lambda x: x * 5, backend=sleeping)(torch.ones(1)).tolist() == [5.0]


def test_a_warm_call_costs_next_to_nothing_more() -> None:
    import torch

    x = torch.ones(2)
    plain, ours = torch.compile(lambda x: x + 1, backend=eager), compiled_with(plan(), lambda x: x + 1, backend=eager)
    plain(x)
    ours(x)

    def cost_us(fn: Any) -> float:
        return min(timeit.repeat(lambda: fn(x), number=5000, repeat=9)) / 5000 * 1e6

    assert min(cost_us(ours) - cost_us(plain) for _ in range(3)) <= 2.0


MODULE = """
import torch, time, os, sys

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) + 4

def hang(graph, inputs):
    time.sleep(600)

def crash(graph, inputs):
    os.abort()

def fine(graph, inputs):
    return graph.forward
"""
PROGRAM = """
import logging, sys, torch, planted, rocsolid as rs
logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stdout)
backend = getattr(planted, sys.argv[1])
fn = rs.compile(planted.Net(), backend=backend, in_child=True, deadline_s=15)
print(fn(torch.zeros(2)).tolist())
"""


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("fine", ""),
        ("crash", "compiling in a child process crashed after"),
        ("hang", "compiling in a child process hung after 15 s"),
    ],
)
def test_a_trial_in_a_child_keeps_native_trouble_out(tmp_path: Path, how: str, says: str) -> None:
    (tmp_path / "planted.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = run_python(str(tmp_path / "program.py"), how, env=with_path(tmp_path))

    assert ran.out.splitlines()[-1] == "[4.0, 4.0]", ran.err
    assert says in ran.out


def test_what_cannot_travel_to_a_child_is_compiled_here() -> None:
    import torch

    from rocsolid.runtime.compile_in_child import try_in_child

    answer = try_in_child(lambda _command, _limit: pytest.fail("asked"), 1, lambda x: x, (torch.ones(1),), {}, {})

    assert answer.ending.value == "skipped"
    assert "cannot be sent to a child" in answer.detail


def test_the_public_door() -> None:
    """Decorator, plan file, refusal of a plan for another platform, and overrides from the environment."""
    script = """
import os, tempfile, torch, rocsolid as rs
from rocsolid.errors import PlanError
@rs.compile(recompiles=3, backend="eager")
def triple(x):
    return x * 3
assert triple(torch.ones(1)).tolist() == [3.0]
plan = rs.resolve("safe")
with tempfile.TemporaryDirectory() as folder:
    plan.save(f"{folder}/plan.toml")
    assert rs.Plan.load(f"{folder}/plan.toml") == plan
    rs.compile(lambda x: x, plan=f"{folder}/plan.toml", backend="eager")
torch.version.hip = "7.1"
try:
    rs.apply(plan)
except PlanError as error:
    print(error)
rs.apply(plan, anywhere=True)
print(rs.compile(lambda x: x).rocsolid.options["max_fusion_size"])
"""
    ran = run_python("-c", script, env=clean_environ(ROCSOLID_INDUCTOR_MAX_FUSION_SIZE="33"))

    assert ran.code == 0, ran.err
    assert re.match("the plan was made for (CPU|CUDA), and this is ROCm; make one here", ran.out)
    assert ran.out.splitlines()[-1] == "33"


def test_plan_error_is_a_usage_error() -> None:
    assert PlanError("x").exit_code == 2
