"""Progressive optimization: calls work immediately, and use the compiled form when it is ready and correct."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, clean_environ, run_python, running

import rocsolid as rs
from rocsolid.model.environment import CheckResult, CheckStatus
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome

pytest.importorskip("torch")
import torch

from rocsolid.api import optimize as optimize_module
from rocsolid.api import safety
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.progressive import Progressive
from rocsolid.runtime import compile_in_child

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x * 2


def progressive(
    compiled: Callable[[], Any], trial: Callable[[], str] | None = None, capture: Any = None
) -> Progressive:
    examples = [Example((torch.ones(4),), {})]
    return Progressive(slow, examples, profile="fast", compiled=compiled, capture=capture, trial=trial)


def test_calls_work_while_compiling_and_then_use_the_compiled_form() -> None:
    def compile_slowly() -> Any:
        time.sleep(0.3)
        return lambda x: x + x

    fast, x, calls = progressive(compile_slowly), torch.ones(4), 0
    while not fast.wait(0):
        assert torch.equal(fast(x), x * 2)
        calls += 1
    report = fast.report()

    assert calls > 20
    assert report.chosen is Form.COMPILED
    assert report.longest_call_ms is not None
    assert 3 <= report.longest_call_ms < 2000
    assert f"slowest call of the model while it was compiled in the background: {report.longest_call_ms:.1f} ms" in str(
        report
    )
    assert min(_call_time_s(fast, x) for _ in range(20)) < 0.003


def test_the_report_says_whether_the_model_is_still_being_compiled() -> None:
    ready = threading.Event()

    def compile_when_told() -> Any:
        assert ready.wait(60)
        return lambda x: x + x

    fast = progressive(compile_when_told)
    before = fast.report()
    ready.set()
    assert fast.wait(60)
    assert (before.in_progress, fast.report().in_progress) == (True, False)
    assert (before.counters()["rocsolid_optimizing"], fast.report().counters()["rocsolid_optimizing"]) == (1, 0)
    assert fast.report().longest_call_ms is None
    assert "slowest call" not in str(fast.report()), "the model was not called meanwhile"


def test_all_examples_are_compiled_in_one_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def run_here(command: Any, _deadline_s: float) -> CheckResult:
        commands.append(command)
        compile_in_child.main(command[3])
        return CheckResult(name="", status=CheckStatus.OK)

    shapes = []

    class Compiled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, *, scale: float = 1.0) -> Any:
            shapes.append((tuple(x.shape), scale))
            return x * scale

    monkeypatch.setattr(torch, "compile", lambda _model, **_: Compiled())
    monkeypatch.setattr(safety, "_run_in_child", run_here)
    examples = [Example((torch.ones(n),), {"scale": float(n)}) for n in (1, 4, 7)]
    plan = rs.resolve("fast")
    assert not optimize_module._compile_in_child(torch.nn.Identity(), examples, plan, 60.0)
    assert len(commands) == 1
    assert shapes == [((n,), float(n)) for n in (1, 4, 7)]


def test_graph_of_eager_is_captured_before_the_first_request() -> None:
    fast = progressive(lambda: slow, capture=lambda f: rs.capture(f, backend="record"))
    captured = fast.captured
    assert captured is not None
    before = captured.report()
    assert (before.captures, before.replays) == (1, 0)
    fast(torch.ones(4))
    after = captured.report()
    assert (after.eager_calls, after.captures, after.replays) == (before.eager_calls, 1, 1)
    assert fast.wait(60)


@pytest.mark.gpu
def test_no_request_takes_twice_as_long_as_eager_while_the_model_is_compiled() -> None:
    """`python -m benchmarks.serve` prints all of it; on a CPU, compile and requests compete for cores."""
    from benchmarks.serve import measure

    found = measure(layers=12, width=768, tokens=128)
    assert found["while compiling"]["requests"] > 100
    assert found["above_twice_eager"] == 0, found


def _call_time_s(call: Any, x: Any) -> float:
    started = time.perf_counter()
    call(x)
    return time.perf_counter() - started


def test_the_background_work_uses_the_callers_grad_mode() -> None:
    grad_modes = []

    def model(x: Any) -> Any:
        grad_modes.append(torch.is_grad_enabled())
        return x * 2

    examples = [Example((torch.ones(4),), {})]
    for grad in (False, True):
        grad_modes.clear()
        with torch.set_grad_enabled(grad):
            fast = Progressive(model, examples, profile="fast", compiled=lambda: model, capture=None, trial=None)
        assert fast.wait(60)
        assert set(grad_modes) == {grad}


@pytest.mark.parametrize("captured", [False, True])
def test_after_a_wrong_or_failed_compile_the_eager_form_stays(captured: bool) -> None:  # noqa: FBT001 - a case
    capture = (lambda f: rs.capture(f, backend="record")) if captured else None

    def fails() -> Any:
        msg = "no compiler"
        raise RuntimeError(msg)

    for make, outcome in ((lambda: lambda x: x * 2.5, FormOutcome.WRONG), (fails, FormOutcome.FAILED)):
        fast = progressive(make, capture=capture)
        assert fast.wait(60)
        assert fast(torch.ones(4)).tolist() == [2.0] * 4
        assert fast.report().chosen.id == "eager"
        assert fast.report().forms[-1].outcome is outcome


def test_a_compile_that_crashes_in_the_child_is_not_repeated_here() -> None:
    def never() -> Any:
        pytest.fail("compiled in this process")

    fast = progressive(never, trial=lambda: "compiling in a child process crashed after 2 s (signal 11)")
    assert fast.wait(60)
    assert "crashed after 2 s" in fast.report().why
    assert fast.report().forms[-1].outcome is FormOutcome.FAILED
    assert fast(torch.ones(4)).tolist() == [2.0] * 4


def test_a_model_is_compiled_in_a_child_process_and_then_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """End to end, with Inductor and its caches on disk."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).eval(), torch.randn(4, 8)
    fast = rs.optimize(model, x, progressive=True)
    assert torch.allclose(fast(x), model(x), atol=1e-5)
    assert isinstance(fast.rocsolid, Progressive)
    deadline = time.monotonic() + 240
    while not fast.wait(0.001):  # torch.fx traces meanwhile
        assert torch.allclose(fast(x), model(x), atol=1e-5)
        assert time.monotonic() < deadline
    compiled = fast.report().forms[-1]
    assert compiled.form is Form.COMPILED
    assert compiled.outcome in (FormOutcome.CHOSEN, FormOutcome.NOT_CHOSEN)
    assert any(tmp_path.rglob("*.py")), "the child process fills the cache"
    assert torch.allclose(fast(x), model(x), atol=1e-5)


def test_a_program_that_ends_during_the_background_compile_exits_cleanly(tmp_path: Path) -> None:
    """No child process is left running. Nothing is logged about the killed child, although the program takes 0.5 s to exit."""
    script = tmp_path / "program.py"
    script.write_text(
        "import atexit, sys, time\n"
        "from pathlib import Path\n"
        "atexit.register(time.sleep, 0.5)  # registered first, called last\n"
        "import torch, rocsolid as rs\n"
        "fast = rs.optimize(torch.nn.Linear(8, 8), torch.ones(4, 8), progressive=True)\n"
        "while not list(Path(sys.argv[1]).glob('rocsolid-*/call.pt')):\n"
        "    time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print(tuple(fast(torch.ones(4, 8)).shape))\n"
    )
    ran = run_python(str(script), str(tmp_path), env=clean_environ(TMPDIR=str(tmp_path)))
    assert (ran.code, ran.out, ran.err) == (0, "(4, 8)\n", "")
    assert not running(f"rocsolid.runtime.compile_in_child {tmp_path}")
    assert not list(tmp_path.glob("rocsolid-*")), "the file for the child process is removed"
