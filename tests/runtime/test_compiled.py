"""`rs.compile`: the attached plan, refused values, recompile limits, deadlines, a trial in a child process."""

import logging
import re
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, clean_environ, make_env, run_python, scaled_cpu_seconds, with_path

import rocsolid as rs
from rocsolid.catalog.profiles import resolve
from rocsolid.errors import CompileDeadlineError, PlanError, RecompileError, UsageError
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel
from rocsolid.runtime import compiled as compiled_module
from rocsolid.runtime.compiled import choose_options, compile_with_plan
from rocsolid.runtime.signature import differences, signature_of
from rocsolid.torchapi.dynamo.compile_hooks import Compile

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


def test_on_rocm_insisted_values_override_the_callers_and_other_values_hold() -> None:
    chosen, refused = choose_options(plan(), "max-autotune", {"epilogue_fusion": False, "combo_kernels": True})

    assert chosen["max_autotune"] is False
    assert chosen["triton.cudagraphs"] is False
    assert chosen["coordinate_descent_tuning"] is True  # from the mode, and safe
    assert chosen["epilogue_fusion"] is False
    assert chosen["combo_kernels"] is True
    assert {(r.setting, r.how) for r in refused} == {
        ("inductor.max_autotune", "mode='max-autotune'"),
        ("inductor.triton.cudagraphs", "mode='max-autotune'"),
    }


def test_on_cuda_the_callers_values_hold() -> None:
    chosen, refused = choose_options(plan(Platform.CUDA), "reduce-overhead", {"max_autotune": True})

    assert (chosen["triton.cudagraphs"], chosen["max_autotune"]) == (True, True)
    assert refused == []


def test_options_unknown_to_this_torch_are_left_out() -> None:
    chosen, _ = choose_options(plan(), None, None)

    assert "force_disable_caches" not in chosen  # an alias
    assert "freezing" not in chosen  # would have no effect as an option
    assert choose_options(plan(), None, {"nonsense": 1})[0]["nonsense"] == 1  # torch itself reports it


def test_a_mode_in_a_plan_is_used_for_inductor_only() -> None:
    import torch

    mode = Decision(
        id="compile.mode", value="max-autotune-no-cudagraphs", channel=Channel.ARGUMENT, why="", profile="tune"
    )
    tuned = replace(plan(Platform.CUDA), decisions=(mode,))

    assert compile_with_plan(tuned, lambda x: x).rocsolid.options["max_autotune"] is True
    assert "max_autotune" not in compile_with_plan(tuned, lambda x: x, mode="default").rocsolid.options
    assert compile_with_plan(tuned, lambda x: x + 1, backend=eager)(torch.ones(1)) == 2  # this backend accepts no mode


def test_a_module_stays_a_module_and_a_function_keeps_name_and_doc() -> None:
    import torch

    module = torch.nn.Linear(4, 4)
    compiled = compile_with_plan(plan(), module, backend=eager)

    def doubled(x: Any, times: int = 2) -> Any:
        """Double it."""
        return x * times

    function = compile_with_plan(plan(), doubled, backend=eager)
    x = torch.ones(2, 4)

    assert isinstance(compiled, torch.nn.Module)
    assert compiled.rocsolid.plan == plan()
    assert torch.equal(compiled(x), module(x))
    assert dict(compiled.named_parameters())
    assert (function.__name__, function.__doc__) == ("doubled", "Double it.")
    assert torch.equal(function(x, times=3), x * 3)


def test_the_plan_holds_in_a_worker_thread() -> None:
    """The values are attached to the function, so the compiler uses them in every thread."""
    import torch
    from torch._inductor import config, graph

    values: list[tuple[bool, int]] = []
    original = graph.GraphLowering.__init__

    def recording_init(self: Any, *args: Any, **kwargs: Any) -> None:
        values.append((config.max_autotune, getattr(config, "compile_worker_wait_timeout", 900)))  # torch 2.12..
        original(self, *args, **kwargs)

    factor = time.time() % 1  # a new value, so that the code is in no cache on disk
    fn = compile_with_plan(plan(), lambda x: torch.sin(x) * factor, options={"max_autotune": True})
    graph.GraphLowering.__init__ = recording_init
    try:
        thread = threading.Thread(target=lambda: fn(torch.ones(3)))
        thread.start()
        thread.join()
    finally:
        graph.GraphLowering.__init__ = original

    assert values == [(False, 900)]
    assert fn.rocsolid.findings[0].code == "GRD001"


def test_dynamo_settings_are_scoped_to_the_compiling_call() -> None:
    import torch
    from torch._dynamo import config

    limits: list[int] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        limits.append(config.recompile_limit)
        return graph.forward

    config.recompile_limit = 77
    try:
        compile_with_plan(plan(), lambda x: x + 1, backend=backend)(torch.ones(2))
        assert limits == [8]
        assert config.recompile_limit == 77
    finally:
        config.recompile_limit = 8


def test_a_recompile_above_the_limit_names_guard_argument_and_line() -> None:
    import torch

    def fn(x: Any, scale: float = 1.0) -> Any:
        return x * scale

    compiled = compile_with_plan(plan(), fn, backend=eager, max_recompiles=1, dynamic=False)
    compiled(torch.ones(2, 3))
    compiled(torch.ones(2, 4))
    with pytest.raises(RecompileError) as error:
        compiled(torch.ones(5, 4))

    message = str(error.value)
    assert "max_recompiles=1 is reached" in message
    assert "failed Dynamo guard: tensor 'x' size mismatch at index 0. expected 2, actual 5" in message
    assert "argument 'x' was float32[2, 4], is now float32[5, 4]" in message
    assert "compiled(torch.ones(5, 4))" in message


def test_a_sealed_function_is_not_compiled_again_and_keeps_working() -> None:
    import torch

    compiled = compile_with_plan(plan(), lambda x: x + 1, backend=eager)
    compiled(torch.ones(2))
    compiled.rocsolid.seal()

    assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
    with pytest.raises(
        RecompileError, match=r"(?s)new compiles are forbidden since seal.*was float32\[2\], is now float64\[2\]"
    ):
        compiled(torch.ones(2, dtype=torch.float64))


def test_graph_breaks_do_not_count_as_recompiles() -> None:
    import torch

    def broken(x: Any) -> Any:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = compile_with_plan(plan(), broken, backend=eager, max_recompiles=0)

    assert compiled(torch.ones(1)).tolist() == [4.0]


def test_signatures_show_the_differences_of_two_calls() -> None:
    import torch

    one = signature_of((torch.ones(2, 3), {"a": [torch.ones(1)]}), {"flag": True}, ("x",))
    with torch.no_grad():
        other = signature_of((torch.ones(3, 2).t(), {"a": [torch.ones(1, dtype=torch.int64)]}), {"flag": 1}, ("x",))

    assert differences(one, other) == [
        "argument 'x' was float32[2, 3], is now float32[2, 3] stride [1, 2]",
        "argument 1['a'][0] was float32[1], is now int64[1]",
        "argument 'flag' was True, is now 1",
        "grad mode was on, is now off",
    ]


def sleep_forever(_graph: Any, _inputs: Any) -> Any:
    while True:
        time.sleep(0.01)


def wait_forever(_graph: Any, _inputs: Any) -> Any:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # blocks forever in the C code of Python


def test_threads_that_wait_for_a_cancelled_compile_do_not_compile_again() -> None:
    import torch

    compiled = compile_with_plan(plan(), lambda x: x * 7, backend=sleep_forever, deadline_s=2.0)
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: compiled(torch.ones(2)).tolist(), range(4)))

    assert results == [[7.0, 7.0]] * 4
    assert time.monotonic() - started < 7  # four deadlines are 8 s
    report = compiled.rocsolid.report()
    assert (report.compiles, report.recompiles, len(report.eager)) == (0, 0, 1)
    assert report.counters()["rocsolid_eager_fallbacks"] == 1


def test_after_seal_a_new_shape_can_run_in_eager(caplog: pytest.LogCaptureFixture) -> None:
    import torch

    compiled = compile_with_plan(plan(), lambda x: x * 5, backend="eager", dynamic=False)
    compiled(torch.ones(2))
    compiled.rocsolid.seal(otherwise="eager")
    for rows in (3, 3, 2):
        assert compiled(torch.ones(rows)).tolist() == [5.0] * rows
    compiled(torch.ones(2).int())

    report = compiled.rocsolid.report()
    assert (report.compiles, report.refused_compiles, report.eager) == (1, 3, ())
    assert report.counters()["rocsolid_refused_compiles_total"] == 3
    assert "3 refused compiles" in str(report)
    logged = [text for r in caplog.records if "others with this change run in eager" in (text := r.getMessage())]
    assert len(logged) == 2  # each change once
    assert "was float32[2], is now float32[3]" in logged[0]
    assert "was float32[2], is now int32[2]" in logged[1]
    with pytest.raises(UsageError, match="use 'raise' or 'eager'"):
        compiled.rocsolid.seal(otherwise="wait")


def test_functions_of_rocsolid_are_not_counted_as_fallbacks() -> None:
    state = compile_with_plan(plan(), lambda x: x, backend="eager").rocsolid
    for code in (rs.compile.__code__, plan.__code__):
        compile_ = Compile(
            code=code, thread_id=0, started=0.0, full_graph=False, skip_reason="no tensor-related objects", owner=state
        )
        compiled_module._listener.on_end(compile_, compiled=False)

    assert [fallback.function.split()[0] for fallback in state.report().eager] == ["plan"]


PROGRESS = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
import torch, rocsolid as rs
from tests.runtime.test_compiled import sleep_forever
rs.compile(lambda x: x * 3, backend=sleep_forever, deadline_s=4.0)(torch.ones(2))
"""


def test_the_progress_of_a_slow_compile_is_logged() -> None:
    """In a process of its own: in one with millions of objects, a garbage collection can take as long as this deadline."""
    ran = run_python("-c", PROGRESS, env=clean_environ(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}"), timeout=120)

    assert "(deadline 4 s), phase: calling the backend" in ran.out, ran.err


@pytest.mark.parametrize("backend", [sleep_forever, wait_forever])
def test_a_compile_that_exceeds_its_deadline_falls_back_to_eager(
    backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    compiled = compile_with_plan(plan(), lambda x: x * 3, backend=backend, deadline_s=1.0)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "rocsolid"):
        result = compiled(torch.ones(2))

    assert result.tolist() == [3.0, 3.0]
    assert 0.9 < time.monotonic() - started < 20  # the compile alone would never end
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]  # in eager, without another compile
    texts = [r.getMessage() for r in caplog.records]
    assert any(
        "compile cancelled after its deadline of 1 s, while calling the backend" in text
        and "stack of the compile" in text
        and backend.__name__ in text
        for text in texts
    )


def doubles() -> Any:
    """Return a new instance of one class: all instances share the code of `forward`."""
    return _doubles_class()()


@cache
def _doubles_class() -> Any:
    import torch

    class Doubles(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    return Doubles


def test_after_a_cancelled_compile_other_instances_of_the_class_are_compiled() -> None:
    import torch

    slow = rs.compile(doubles(), backend=sleep_forever, deadline_s=0.5)
    assert slow(torch.ones(2)).tolist() == [2.0, 2.0]

    with rs.record_compiles() as recorder:
        again = rs.compile(doubles(), backend=eager)
        again(torch.ones(2))
        torch.compile(doubles(), backend="aot_eager")(torch.ones(2))

    assert len(recorder.graphs) == 2
    assert again.rocsolid.report().compiles == 1
    report = slow.rocsolid.report()
    assert report.compiles == 0
    assert "cancelled after its deadline of 0.5 s" in report.eager[0].why
    assert "1 fallback to eager" in str(report)


def test_a_function_that_torch_does_not_compile_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    import torch

    @torch.compiler.disable
    def disabled(x: Any) -> Any:
        return x + 1

    function = rs.compile(lambda x: disabled(x), backend=eager)  # noqa: PLW0108 - torch.compile would look into it
    with caplog.at_level(logging.WARNING, "rocsolid"):
        function(torch.ones(1))
        function(torch.ones(1))

    assert [text for text in caplog.messages if "nothing was compiled, it runs in eager" in text] == caplog.messages
    assert len(function.rocsolid.report().eager) == len(caplog.messages) == 1


def test_code_that_was_compiled_before_is_not_reported_as_eager() -> None:
    import torch

    rs.compile(doubles(), backend=eager)(torch.ones(2))
    again = rs.compile(doubles(), backend=eager)
    again(torch.ones(2))

    assert again.rocsolid.report().eager == ()


def test_the_guard_reports_what_runs_in_eager_and_removes_its_marks() -> None:
    import torch

    with rs.guard(deadline_s=0.5) as guard:
        torch.compile(doubles(), backend=sleep_forever)(torch.ones(2))
        report = guard.report()
    with rs.record_compiles() as recorder:
        torch.compile(doubles(), backend=eager)(torch.ones(2))

    assert "Doubles.forward" in report.eager[0].function
    assert "cancelled after its deadline of 0.5 s" in report.eager[0].why
    assert len(recorder.graphs) == 1


def test_after_one_cancelled_compile_all_layers_run_in_eager() -> None:
    import torch

    from rocsolid.runtime.regional_compile import RegionalModel

    layers = [torch.nn.Sequential(doubles()) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    regional = RegionalModel(
        model, lambda forward: compile_with_plan(plan(), forward, backend=sleep_forever, deadline_s=0.5)
    )

    assert regional(torch.ones(1)).tolist() == [16.0]
    assert [len(state.report().eager) for state in regional.compile_states] == [1, 0, 0, 0]
    assert all(state.eager_only for state in regional.compile_states)


def test_a_deadline_holds_in_a_worker_thread() -> None:
    import torch

    results: list[Any] = []
    compiled = compile_with_plan(plan(), lambda x: x * 3, backend=sleep_forever, deadline_s=1.0)
    thread = threading.Thread(target=lambda: results.append(compiled(torch.ones(1)).tolist()))
    thread.start()
    thread.join(10)

    assert results == [[3.0]]


def test_with_fullgraph_exceeding_the_deadline_is_an_error() -> None:
    import torch

    compiled = compile_with_plan(plan(), lambda x: x * 3, backend=sleep_forever, deadline_s=0.5, fullgraph=True)

    with pytest.raises(CompileDeadlineError, match="fullgraph=True allows no fallback to eager"):
        compiled(torch.ones(1))


def test_a_compile_within_its_deadline_succeeds_and_the_signal_handler_is_restored() -> None:
    import signal

    import torch

    from rocsolid.runtime.compile_deadline import _SIGNAL

    before = signal.getsignal(_SIGNAL)
    compiled = compile_with_plan(plan(), lambda x: x * 3, backend=eager, deadline_s=30)

    assert compiled(torch.ones(1)).tolist() == [3.0]
    assert signal.getsignal(_SIGNAL) == before


def test_the_guard_gives_every_compile_a_deadline() -> None:
    import torch

    from rocsolid.runtime.guard import Guard

    with Guard(None, deadline_s=0.7):
        assert torch.compile(lambda x: x * 5, backend=sleep_forever)(torch.ones(1)).tolist() == [5.0]


def test_a_warm_call_costs_at_most_two_microseconds_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch's own 40 µs: they vary by more than the limit."""
    monkeypatch.setattr("torch.compile", lambda function, **_: function)

    def plain(x: int) -> int:
        return x

    compiled = compile_with_plan(plan(), plain)
    assert compiled(1) == 1

    def seconds(function: Callable[[int], int]) -> float:
        return scaled_cpu_seconds(lambda: min(timeit.repeat(lambda: function(1), number=1000, repeat=20)))

    assert (seconds(compiled) - seconds(plain)) / 1000 <= 2e-6


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
import logging, sys, torch, user_module, rocsolid as rs
logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stdout)
backend = getattr(user_module, sys.argv[1])
fn = rs.compile(user_module.Net(), backend=backend, in_child=True, deadline_s=15)
print(fn(torch.zeros(2)).tolist())
"""


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("fine", ""),
        ("crash", "compiling in a child process crashed after"),
        ("hang", "compiling in a child process did not finish within 15 s"),
    ],
)
def test_a_trial_in_a_child_process_survives_hangs_and_crashes(tmp_path: Path, backend: str, message: str) -> None:
    (tmp_path / "user_module.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = run_python(str(tmp_path / "program.py"), backend, env=with_path(tmp_path))

    assert ran.out.splitlines()[-1] == "[4.0, 4.0]", ran.err
    assert message in ran.out


def test_a_function_that_cannot_be_pickled_is_compiled_in_this_process() -> None:
    import torch

    from rocsolid.runtime.compile_in_child import try_in_child

    result = try_in_child(
        lambda _command, _deadline_s: pytest.fail("started a child process"), 1, lambda x: x, (torch.ones(1),), {}, {}
    )

    assert result.status.value == "skipped"
    assert "cannot be sent to a child process" in result.detail


@pytest.mark.parametrize("background", [False, True])
def test_a_compile_in_the_background_has_a_low_priority(background: bool) -> None:  # noqa: FBT001 - a case
    import torch

    from rocsolid.model.environment import CheckResult, CheckStatus
    from rocsolid.runtime.compile_in_child import try_in_child

    def run_command(command: Any, _deadline_s: float) -> CheckResult:
        return CheckResult(name="", status=CheckStatus.OK, detail=" ".join(command[4:]))

    task = {"compile": {}, "background": background}
    result = try_in_child(run_command, 60, torch.nn.Linear(1, 1), (torch.ones(1),), {}, task)
    assert result.detail == ("10" if background else "")


def test_the_public_functions() -> None:
    """Use the decorator, a plan file, a plan for another platform (refused), and an override from the environment."""
    script = """
import os, tempfile, torch, rocsolid as rs
from rocsolid.errors import PlanError
@rs.compile(max_recompiles=3, backend="eager")
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
rs.apply(plan, ignore_platform=True)
print(rs.compile(lambda x: x).rocsolid.options["max_fusion_size"])
"""
    ran = run_python("-c", script, env=clean_environ(ROCSOLID_INDUCTOR_MAX_FUSION_SIZE="33"))

    assert ran.code == 0, ran.err
    assert re.match("the plan was made for (CPU|CUDA), but this machine has ROCm", ran.out)
    assert ran.out.splitlines()[-1] == "33"


def test_plan_error_is_a_usage_error() -> None:
    assert PlanError("x").exit_code == 2
