"""Compiled code is saved for the next process; files that other users may have written are never loaded."""

import gc
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, replace_forms, run_python

import rocsolid as rs

pytest.importorskip("torch")
import torch

from rocsolid.measure import user_cache
from rocsolid.model.form import Form
from rocsolid.model.plan import Decision
from rocsolid.model.setting import Channel
from rocsolid.optimize import form_race, warm_start
from rocsolid.optimize.race import RaceLimits, run_race
from rocsolid.optimize.warm_start import _load, key_of

pytestmark = pytest.mark.torch
ALL_FORMS = [Form.EAGER, Form.REGIONAL, Form.COMPILED]
PROGRAM = """
import json, sys, torch, logging
logging.basicConfig()
import rocsolid as rs
import rocsolid.api.optimize as api
from rocsolid.optimize import form_race
form_race._MAX_NOISE_TO_SAVE = -1.0  # if eager wins, the next process compiles again
api._tried_settings = lambda *_, **__: []  # which ones are tried depends on the time that is left
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(2)]).eval()
with torch.no_grad():
    fast = rs.optimize(model, torch.randn(4, 64), artefacts=sys.argv[1])
counters = torch._dynamo.utils.counters["inductor"]
print(json.dumps({"hit": counters["fxgraph_cache_hit"], "miss": counters["fxgraph_cache_miss"]}))
"""


def test_the_second_process_uses_what_the_first_compiled(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    results = []
    for process_index in range(2):
        env = {**clean_environ(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"cache{process_index}")}
        ran = run_python("-c", PROGRAM, str(saved), env=env)
        assert ran.code == 0, ran.err
        results.append(json.loads(ran.out.splitlines()[-1]))
    assert results[0]["miss"] > 0
    assert results[1]["miss"] == 0, "another cache folder, and still nothing was compiled"
    assert results[1]["hit"] > 0
    assert saved.stat().st_mode & 0o777 == 0o700
    for file in saved.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_damaged_or_untrusted_file_is_ignored_with_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "saved"
    file = folder / "key.bin"
    assert not _load(file)
    assert not caplog.messages
    user_cache.write(file, b"payload")
    file.write_bytes(file.read_bytes()[:-1])
    assert not _load(file)
    assert "the file is damaged, or rocsolid did not write it" in caplog.messages[-1]
    file.write_bytes(b"<html>")
    assert not _load(file)
    user_cache.write(file, b"no artefact of torch's")
    assert not _load(file)
    assert "ignored: torch found no artefacts in it" in caplog.messages[-1]
    for path, mode in ((file, 0o622), (folder, 0o777)):
        original_mode = path.stat().st_mode
        path.chmod(mode)
        assert not _load(file)
        assert f"other users may write to {path}" in caplog.messages[-1]
        path.chmod(original_mode)


def test_the_key_depends_on_model_plan_and_shapes() -> None:
    safe, fast = rs.resolve("safe"), rs.resolve("fast")
    small, large, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 3), torch.nn.Linear(2, 2).half()
    models: list[Any] = [small, large, other, torch.sin, torch.cos]
    keys = {key_of(model, plan) for model in models for plan in (safe, fast)}
    assert len(keys) == 2 * len(models)
    freezing = Decision(id="inductor.freezing", value=True, channel=Channel.OPTION, why="", profile="optimize")
    assert key_of(small, safe, tried=[freezing]) not in keys
    assert key_of(small, safe) == key_of(torch.nn.Linear(2, 2), safe)


@pytest.fixture
def saves_artefacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch saves and loads cache artefacts, without compiling."""
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"artefacts", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", lambda _: True)


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x * 2


def quick(x: Any) -> Any:
    return x + x


def run_optimize(
    monkeypatch: pytest.MonkeyPatch, folder: Path, example: Any = None, compiled: Any = quick, **kwargs: Any
) -> tuple[list[Form], Any]:
    """Return the forms that were prepared, and the report."""
    functions = {Form.EAGER: slow, Form.REGIONAL: slow, Form.COMPILED: compiled}
    prepared = replace_forms(monkeypatch, functions)
    fast = rs.optimize(slow, torch.ones(4) if example is None else example, artefacts=folder, **kwargs)
    return prepared, fast.report()


@pytest.mark.usefixtures("saves_artefacts")
def test_the_next_process_prepares_only_eager_and_the_fastest_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    assert run_optimize(monkeypatch, folder)[0] == ALL_FORMS
    prepared, report = run_optimize(monkeypatch, folder)
    assert prepared == [Form.EAGER, Form.COMPILED]
    assert report.chosen is Form.COMPILED
    assert "the other forms were measured on 20" in report.why
    assert run_optimize(monkeypatch, folder, torch.ones(5))[0] == ALL_FORMS, (
        "with another input shape, all forms are measured"
    )


@pytest.mark.usefixtures("saves_artefacts")
def test_the_saved_form_is_measured_for_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    races: list[tuple[RaceLimits, bool]] = []  # limits, and whether the garbage collector runs

    def recording_run_race(forms: Any, examples: Any, limits: RaceLimits, *_: Any) -> Any:
        races.append((limits, gc.isenabled()))
        return run_race(forms, examples, limits)

    monkeypatch.setattr(form_race, "run_race", recording_run_race)
    for _ in range(2):
        run_optimize(monkeypatch, tmp_path / "saved")

    assert races == [(RaceLimits(20.0, 15), True), (RaceLimits(2.0, 8), False)], "with the garbage collector paused"
    assert gc.isenabled()


@pytest.mark.usefixtures("saves_artefacts")
@pytest.mark.parametrize("function", [slow, lambda x: x * 3], ids=["no longer faster", "wrong"])
def test_all_forms_are_measured_if_the_saved_form_is_not_the_fastest_any_more(
    function: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    run_optimize(monkeypatch, folder)
    prepared, report = run_optimize(monkeypatch, folder, compiled=function)
    assert prepared == [Form.EAGER, Form.COMPILED, *ALL_FORMS]
    assert report.chosen is Form.EAGER


@pytest.mark.usefixtures("saves_artefacts")
@pytest.mark.parametrize("max_noise", [-1.0, float("inf")], ids=["noisy", "quiet"])
def test_eager_is_saved_if_it_won_on_a_quiet_machine(
    max_noise: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(form_race, "_MAX_NOISE_TO_SAVE", max_noise)
    folder = tmp_path / "saved"
    run_optimize(monkeypatch, folder, compiled=slow)
    prepared, report = run_optimize(monkeypatch, folder, compiled=slow)
    is_saved = max_noise > 0
    assert prepared == ([Form.EAGER] if is_saved else ALL_FORMS)
    assert report.chosen is Form.EAGER
    assert ("the other forms were measured on 20" in report.why) == is_saved


@pytest.mark.usefixtures("saves_artefacts")
def test_the_fastest_form_is_not_saved_if_a_form_was_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    assert run_optimize(monkeypatch, folder, budget_s=0)[0] == [Form.EAGER]
    assert run_optimize(monkeypatch, folder)[0] == ALL_FORMS


@pytest.mark.usefixtures("saves_artefacts")
def test_a_damaged_or_untrusted_winner_file_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    run_optimize(monkeypatch, folder)
    (winner_file,) = folder.glob("*.json")
    for text in ("", "[]", '{"winner": 3}', '{"winner": "gone", "race_date": ""}'):
        winner_file.write_text(text, encoding="utf-8")
        assert len(run_optimize(monkeypatch, folder)[0]) == 3, text
    winner_file.chmod(0o666)
    assert len(run_optimize(monkeypatch, folder)[0]) == 3


@pytest.mark.usefixtures("saves_artefacts")
def test_the_compiler_is_preloaded_only_if_artefacts_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[str] = []
    monkeypatch.setattr(warm_start, "preload_compiler", lambda: started.append("compiler"))
    monkeypatch.setattr(warm_start, "prewarm_libraries", lambda _: started.append("libraries"))
    run_optimize(monkeypatch, tmp_path / "saved")
    assert not started, "no artefacts exist for this model"
    run_optimize(monkeypatch, tmp_path / "saved")
    assert started == ["libraries", "compiler"], "libraries first: loading them does not hold the interpreter lock"


def test_a_lazy_module_has_a_key_before_and_after_its_first_call() -> None:
    lazy, filled = torch.nn.LazyLinear(2), torch.nn.LazyLinear(2)
    filled(torch.ones(1, 3))
    assert len({key_of(model, rs.resolve("fast")) for model in (lazy, filled)}) == 2
