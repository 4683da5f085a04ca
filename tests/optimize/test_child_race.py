"""The forms are raced in a child process, and only the fastest one is set up in this process; without a child, the race is here."""

import json
import os
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, replace_forms, run_python

import rocsolid as rs
from rocsolid.errors import UsageError
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import OptimizeReport
from rocsolid.model.plan import Tuned
from rocsolid.model.progress import Step

pytest.importorskip("torch")
import torch

from rocsolid.api import optimize as api
from rocsolid.optimize import child_race, optimized
from rocsolid.optimize.child_race import NoChildRace, _is_guarded
from rocsolid.optimize.example_inputs import Example

pytestmark = pytest.mark.torch
SCRIPT = """
import json, sys, torch
from dataclasses import replace
import rocsolid as rs
from rocsolid.model.plan import Tuned

class Wave(torch.nn.Module):
    def forward(self, x):
        for _ in range(100):
            x = x.sin() * 1.5
        return x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = Wave()
    def forward(self, x):
        return self.wave(x)

{guard}
    tuned = dict.fromkeys(("workload", "verdict", "checked", "device", "arch", "python", "date"), "")
    tuned |= dict(form=sys.argv[2], graph=False, speedup=1.0, low=1.0, high=1.0, noise=0.0)
    plan = replace(rs.resolve("fast"), tuned=Tuned(**tuned))  # only eager and compiled, and no settings are tried
    torch.set_num_threads(1)
    with torch.no_grad():
        fast = rs.optimize(Net(), torch.ones(4), plan=plan, race_in="child", artefacts=sys.argv[1])
    counters = torch._dynamo.utils.counters["inductor"]
    report = fast.report()
    print(json.dumps({{
        "raced_in": report.raced_in, "chosen": report.chosen.label, "why": report.why, "text": str(report),
        "hit": counters["fxgraph_cache_hit"], "miss": counters["fxgraph_cache_miss"],
    }}))
"""


def run_script(tmp_path: Path, guard: str, form: str) -> Any:
    (tmp_path / "script.py").write_text(SCRIPT.format(guard=guard))
    env = clean_environ(TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"), XDG_CACHE_HOME=str(tmp_path))
    ran = run_python(str(tmp_path / "script.py"), str(tmp_path / "saved"), form, env=env)
    assert ran.code == 0, ran.err
    return json.loads(ran.out.splitlines()[-1])


def test_only_the_winner_is_set_up_here_and_from_the_cache(tmp_path: Path) -> None:
    first = run_script(tmp_path, 'if __name__ == "__main__":', "compiled")
    assert first["raced_in"].startswith("a child process"), first["raced_in"]
    assert first["chosen"] == "compiled", first["why"]
    assert (first["hit"], first["miss"]) == (1, 0), "this process compiled nothing anew"
    assert "the forms were measured in a child process" in first["text"]

    second = run_script(tmp_path, 'if __name__ == "__main__":', "compiled")
    assert second["raced_in"] == "", "the saved winner is checked here, without a child process"
    assert "the other forms were measured on" in second["why"]


def test_a_script_without_a_guard_is_not_run_twice(tmp_path: Path) -> None:
    result = run_script(tmp_path, "if True:", "eager")
    assert result["raced_in"].startswith("this process")
    assert 'script.py, which has no `if __name__ == "__main__":`' in result["raced_in"]


def test_a_guard_is_an_if_about_the_name() -> None:
    assert _is_guarded(b'x = 1\nif __name__ == "__main__":\n    main()')
    assert not _is_guarded(b'x = "__name__"\nif x:\n    main()')
    assert not _is_guarded(b"if (")


class Plain(torch.nn.Module):  # type: ignore[misc]
    """A model that can be sent to a child process."""

    def forward(self, x: Any) -> Any:
        return x * 2


class EndsTheChild(torch.nn.Module):  # type: ignore[misc]
    """A model that runs only in the process in which it was made: elsewhere it crashes or hangs."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.process = how, os.getpid()

    def forward(self, x: Any) -> Any:
        if os.getpid() != self.process:
            time.sleep(100) if self.how == "hang" else os._exit(3)
        return x * 2


@pytest.fixture
def few_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process there is only eager, so that nothing is compiled."""
    monkeypatch.setattr(optimized, "available_forms", lambda model, *_, **__: {Form.EAGER: lambda: model})


@pytest.mark.usefixtures("few_forms")
def test_what_cannot_be_sent_is_raced_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(Plain):
        pass

    def no_child(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(child_race, "run_with_deadline", no_child)
    x = torch.ones(2)
    for model in (Local(), lambda x: x * 2):
        report = rs.optimize(model, x, race_in="child").report()
        assert report.raced_in.startswith("this process: the model or an example cannot be pickled")
        assert report.raced_in in str(report)
    workload = types.ModuleType("loaded_from_a_path")
    exec("class Loaded(Plain): pass", vars(workload) | {"Plain": Plain}, vars(workload))  # noqa: S102
    workload.Loaded.__module__ = workload.__name__
    monkeypatch.setitem(sys.modules, workload.__name__, workload)
    report = rs.optimize(workload.Loaded(), x, race_in="child").report()
    assert "the module loaded_from_a_path, which a new process cannot import" in report.raced_in
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 0}))
    assert "no room for a copy" in rs.optimize(Plain(), x, race_in="child").report().raced_in
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert "torch.distributed" in rs.optimize(Plain(), x, race_in="child").report().raced_in
    assert rs.optimize(Plain(), x).report().raced_in == "", "on the CPU the race is here, and that needs no reason"
    with pytest.raises(UsageError, match="race_in='elsewhere'"):
        rs.optimize(Plain(), x, race_in="elsewhere")


def test_a_second_copy_of_the_model_must_fit_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3 << 30, 80 << 30))
    assert child_race._folder_for({gpu: 1 << 20}).is_dir()
    with pytest.raises(child_race._CannotSendError, match=r"3.0 GiB free, too little .* \(2.5 GiB\)"):
        child_race._folder_for({gpu: 5 << 29})
    linear = torch.nn.Linear(3, 5)
    sizes = child_race._bytes_by_device(linear, [Example((torch.ones(7), torch.ones(7)), {})])
    assert sizes == {torch.device("cpu"): 4 * (15 + 5 + 7 + 7)}


@pytest.mark.usefixtures("few_forms")
@pytest.mark.parametrize(("how", "why"), [("crash", "failed"), ("hang", "hung")])
def test_a_child_that_fails_costs_only_the_race(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str, why: str
) -> None:
    monkeypatch.setattr(api, "_MIN_CHILD_BUDGET_S", 0.0)
    budget_s = 20.0 if how == "crash" else 8.0
    started = time.perf_counter()
    fast = rs.optimize(EndsTheChild(how), torch.ones(2), race_in="child", budget_s=budget_s)
    assert time.perf_counter() - started < 1.5 * budget_s
    assert f"this process: the child process {why}" in fast.report().raced_in
    assert [text for text in caplog.messages if "the forms are measured in this process" in text]
    assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.usefixtures("few_forms")
def test_a_short_budget_leaves_no_time_for_a_child() -> None:
    report = rs.optimize(Plain(), torch.ones(2), race_in="child", budget_s=5).report()
    assert "takes seconds to start, and budget_s is 5" in report.raced_in


def quick(x: Any) -> Any:
    return x + x


def wrong(x: Any) -> Any:
    return x + 3


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x * 2


def optimize_after(
    monkeypatch: pytest.MonkeyPatch, folder: Path, chosen: Form, functions: dict[Form, Any]
) -> tuple[list[Form], Any]:
    """Return the forms that are set up here after a child has chosen one, and the report."""
    prepared = replace_forms(monkeypatch, functions)
    here = rs.optimize(slow, torch.ones(4)).report()
    prepared.clear()
    elsewhere = replace(here, chosen=chosen, why="it was the fastest in the child")
    monkeypatch.setattr(api, "race_in_child", lambda *_, **__: elsewhere)
    return prepared, rs.optimize(slow, torch.ones(4), race_in="child", artefacts=folder / "second").report()


def test_the_report_has_the_forms_of_both_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    functions = {Form.EAGER: slow, Form.REGIONAL: slow, Form.COMPILED: quick}
    prepared, report = optimize_after(monkeypatch, tmp_path, Form.COMPILED, functions)
    assert prepared == [Form.EAGER, Form.COMPILED]
    assert [result.form for result in report.forms] == list(functions)
    assert report.chosen is Form.COMPILED
    assert all(result.timing for result in report.forms)
    assert report.raced_in.startswith("a child process")


def test_eager_can_win_in_the_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prepared, report = optimize_after(monkeypatch, tmp_path, Form.EAGER, {Form.EAGER: slow, Form.COMPILED: slow})
    assert prepared == [Form.EAGER], "nothing is compiled or captured here"
    assert (report.chosen, report.why) == (Form.EAGER, "it was the fastest in the child")


def test_a_winner_that_is_wrong_here_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    functions = {Form.EAGER: slow, Form.REGIONAL: quick, Form.COMPILED: wrong}
    prepared, report = optimize_after(monkeypatch, tmp_path, Form.COMPILED, functions)
    assert report.chosen is Form.REGIONAL, "all forms were measured here"
    assert report.raced_in == ""
    assert prepared == [Form.EAGER, Form.COMPILED, *functions]
    assert [text for text in caplog.messages if "won in a child process, but not here" in text]


def test_steps_and_state_reach_the_other_process(tmp_path: Path) -> None:
    steps: list[Step] = []
    reader = child_race._StepReader(tmp_path / "steps.json", steps.append)
    reader.forward()
    (tmp_path / "steps.json").write_text('{"what": "compiling", "done": 1, "total": 3, "best": ""}')
    reader.forward()
    reader.forward()
    assert steps == [Step(what="compiling", done=1, total=3)]

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch._inductor.config.patch(max_fusion_size=13):
        state = child_race._torch_state()
    state["default dtype"] = torch.float64
    try:
        with child_race._with_torch_state(state):
            assert not torch.is_grad_enabled()
            assert torch.is_autocast_enabled("cpu")
            assert torch.ones(1).dtype is torch.float64
            assert torch._inductor.config.max_fusion_size == 13
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch._inductor.config.max_fusion_size != 13


@pytest.mark.gpu
def test_on_a_gpu_one_graph_is_captured_here() -> None:
    """Run alone: other tests of a process capture graphs, too."""
    program = """
import torch, rocsolid as rs
from rocsolid.runtime.capture.backends.device import DeviceSession
from benchmarks.denoiser import Expert
model = Expert(layers=4).cuda().bfloat16().eval()
x, when = torch.randn(1, 50, 1024, device="cuda").bfloat16(), torch.ones(1, 1, 1, device="cuda").bfloat16()
keys = [torch.randn(1, 8, 80, 128, device="cuda").bfloat16() for _ in range(4)]
with torch.no_grad():
    fast = rs.optimize(model, (x, when, keys, keys))
    report = fast.report()
    assert report.raced_in.startswith("a child process"), report.raced_in
    assert report.chosen.graph, str(report)
    assert report.graphs_captured == DeviceSession.captures == 1, str(report)
    assert torch.allclose(fast(x, when, keys, keys), model(x, when, keys, keys), atol=0.1)
"""
    ran = run_python("-c", program, env=clean_environ(PYTHONPATH=os.environ.get("PYTHONPATH", "src:.")))
    assert ran.code == 0, ran.err


def test_the_report_of_a_child_is_read_back() -> None:
    tuned = dict.fromkeys(("workload", "verdict", "checked", "device", "arch", "python", "date"), "")
    plan = replace(
        rs.resolve("fast"),
        tuned=Tuned(**tuned, form="eager", graph=False, speedup=1.0, low=1.0, high=1.0, noise=0.0),
    )
    steps: list[Step] = []
    options = {"plan": plan, "race_in": "process"}
    example = Example((torch.ones(2),), {})
    report = child_race.race_in_child(api.optimize, Plain(), [example], options, budget_s=60.0, on_step=steps.append)
    assert isinstance(report, OptimizeReport), report
    assert report.chosen is Form.EAGER

    options |= {"profile": 3}
    failed = child_race.race_in_child(
        api.optimize, Plain(), [example], options | {"plan": None}, budget_s=60.0, on_step=print
    )
    assert isinstance(failed, NoChildRace)
    assert failed.failed
    assert "failed" in failed.why
