"""Answers at once, changes over when the better form is ready and right, and stays when it is not."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, clean_environ, run_python, running

import rocsolid as rs
from rocsolid.model.optimize_report import Outcome

pytest.importorskip("torch")
import torch

from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.progressive import Progressive

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


def test_it_answers_meanwhile_and_then_changes_over() -> None:
    def takes_a_while() -> Any:
        time.sleep(0.3)
        return lambda x: x + x

    fast, x, answered = progressive(takes_a_while), torch.ones(4), 0
    while not fast.wait(0):
        assert torch.equal(fast(x), x * 2)
        answered += 1
    report = fast.report()

    assert answered > 20
    assert report.chosen == "compiled"
    assert report.worst_ms is not None
    assert 3 <= report.worst_ms < 2000
    assert f"the longest call meanwhile took {report.worst_ms:.1f} ms" in str(report)
    assert min(_seconds(fast, x) for _ in range(20)) < 0.003


def _seconds(call: Any, x: Any) -> float:
    begun = time.perf_counter()
    call(x)
    return time.perf_counter() - begun


def test_the_work_beside_is_done_in_the_callers_grad_mode() -> None:
    seen = []

    def model(x: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return x * 2

    examples = [Example((torch.ones(4),), {})]
    for grad in (False, True):
        seen.clear()
        with torch.set_grad_enabled(grad):
            fast = Progressive(model, examples, profile="fast", compiled=lambda: model, capture=None, trial=None)
        assert fast.wait(60)
        assert set(seen) == {grad}


@pytest.mark.parametrize("captured", [False, True])
def test_a_wrong_or_failed_compile_leaves_what_served(captured: bool) -> None:  # noqa: FBT001 - a case
    capture = (lambda f: rs.capture(f, backend="record")) if captured else None

    def fails() -> Any:
        msg = "no compiler"
        raise RuntimeError(msg)

    for make, outcome in ((lambda: lambda x: x * 2.5, Outcome.WRONG), (fails, Outcome.FAILED)):
        fast = progressive(make, capture=capture)
        assert fast.wait(60)
        assert fast(torch.ones(4)).tolist() == [2.0] * 4
        assert fast.report().chosen.startswith("eager")
        assert fast.report().candidates[-1].outcome is outcome


def test_what_dies_in_the_child_is_not_tried_here() -> None:
    def never() -> Any:
        pytest.fail("the child has died of it")

    fast = progressive(never, trial=lambda: "compiling in a child process crashed after 2 s (signal 11)")
    assert fast.wait(60)
    assert "crashed after 2 s" in fast.report().why
    assert fast.report().candidates[-1].outcome is Outcome.FAILED
    assert fast(torch.ones(4)).tolist() == [2.0] * 4


def test_a_model_is_compiled_in_a_child_and_then_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The whole way, with Inductor and its caches on disk."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).eval(), torch.randn(4, 8)
    fast = rs.optimize(model, x, progressive=True)
    assert torch.allclose(fast(x), model(x), atol=1e-5)
    assert isinstance(fast, Progressive)
    assert fast.wait(240)
    compiled = fast.report().candidates[-1]
    assert compiled.name == "compiled"
    assert compiled.outcome in (Outcome.CHOSEN, Outcome.SLOWER)
    assert any(tmp_path.rglob("*.py")), "the child has filled the cache"
    assert torch.allclose(fast(x), model(x), atol=1e-5)


def test_a_program_that_ends_while_the_child_compiles_ends_well(tmp_path: Path) -> None:
    """Nobody is left behind, and nothing is said of a child that was ended by ourselves, even if there were time to."""
    script = tmp_path / "program.py"
    script.write_text(
        "import atexit, sys, time\n"
        "from pathlib import Path\n"
        "atexit.register(time.sleep, 0.5)  # the first to come is the last to be called\n"
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
    assert not list(tmp_path.glob("rocsolid-*")), "what was sent to the child is gone with the program"
