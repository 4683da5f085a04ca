"""What was compiled is kept for the next process, and nothing is loaded that somebody else may have written."""

import gc
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, run_python

import rocsolid as rs

pytest.importorskip("torch")
import torch

from rocsolid.measure import user_cache
from rocsolid.optimize import optimized, warm_start
from rocsolid.optimize.race import Heat, run_race
from rocsolid.optimize.warm_start import _load, key_of

pytestmark = pytest.mark.torch
PROGRAM = """
import json, sys, torch, logging
logging.basicConfig()
import rocsolid as rs
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(2)]).eval()
with torch.no_grad():
    fast = rs.optimize(model, torch.randn(4, 64), artefacts=sys.argv[1])
counters = torch._dynamo.utils.counters["inductor"]
print(json.dumps({"hit": counters["fxgraph_cache_hit"], "miss": counters["fxgraph_cache_miss"]}))
"""


def test_the_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    told = []
    for number in range(2):
        env = {**clean_environ(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"cache{number}")}
        ran = run_python("-c", PROGRAM, str(kept), env=env)
        assert ran.code == 0, ran.err
        told.append(json.loads(ran.out.splitlines()[-1]))
    assert told[0]["miss"] > 0
    assert told[1]["miss"] == 0, "another cache folder, and still nothing was compiled anew"
    assert told[1]["hit"] > 0
    assert kept.stat().st_mode & 0o777 == 0o700
    for file in kept.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_damaged_or_foreign_is_left_with_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "kept"
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
    assert "ignored: torch found nothing in it" in caplog.messages[-1]
    for path, mode in ((file, 0o622), (folder, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert not _load(file)
        assert f"other users may write to {path}" in caplog.messages[-1]
        path.chmod(before)


def test_the_key_tells_models_plans_and_shapes_apart() -> None:
    safe, fast = rs.resolve("safe"), rs.resolve("fast")
    small, large, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 3), torch.nn.Linear(2, 2).half()
    models: list[Any] = [small, large, other, torch.sin, torch.cos]
    keys = {key_of(model, plan) for model in models for plan in (safe, fast)}
    assert len(keys) == 2 * len(models)
    assert key_of(small, safe) == key_of(torch.nn.Linear(2, 2), safe)


@pytest.fixture
def keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Artefacts of torch's, without compiling."""
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"artefacts", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", lambda _: True)


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x * 2


def quick(x: Any) -> Any:
    return x + x


def tried(
    monkeypatch: pytest.MonkeyPatch, folder: Path, example: Any = None, second: Any = quick, **kwargs: Any
) -> tuple[list[str], Any]:
    """The forms that were set up, and the report."""
    made: list[str] = []

    def forms(*_: Any, **__: Any) -> dict[str, Any]:
        def form(name: str, function: Any) -> Any:
            def make() -> Any:
                made.append(name)
                return function

            return make

        return {"eager": form("eager", slow), "middling": form("middling", slow), "quick": form("quick", second)}

    monkeypatch.setattr(optimized, "candidates", forms)
    fast = rs.optimize(slow, torch.ones(4) if example is None else example, artefacts=folder, **kwargs)
    return made, fast.report()


@pytest.mark.usefixtures("keeps")
def test_the_next_process_sets_up_only_what_won(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert tried(monkeypatch, folder)[0] == ["eager", "middling", "quick"]
    made, report = tried(monkeypatch, folder)
    assert made == ["eager", "quick"]
    assert report.chosen == "quick"
    assert "the other forms were tried on 20" in report.why
    assert tried(monkeypatch, folder, torch.ones(5))[0] == ["eager", "middling", "quick"], "another call, another race"


@pytest.mark.usefixtures("keeps")
def test_what_has_won_before_is_raced_for_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allowed: list[tuple[Heat, bool]] = []

    def timed(entrants: Any, examples: Any, heat: Heat) -> Any:
        allowed.append((heat, gc.isenabled()))
        return run_race(entrants, examples, heat)

    monkeypatch.setattr(optimized, "run_race", timed)
    for _ in range(2):
        tried(monkeypatch, tmp_path / "kept")

    assert allowed == [(Heat(20.0, 15), True), (Heat(2.0, 8), False)], "and without looking for garbage"
    assert gc.isenabled()


@pytest.mark.usefixtures("keeps")
@pytest.mark.parametrize("now", [slow, lambda x: x * 3], ids=["no longer faster", "wrong"])
def test_a_winner_that_is_none_any_more_is_raced_again(
    now: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    tried(monkeypatch, folder)
    made, report = tried(monkeypatch, folder, second=now)
    assert made == ["eager", "quick", "eager", "middling", "quick"]
    assert report.chosen == "eager"
    assert tried(monkeypatch, folder)[0] == ["eager", "middling", "quick"], "nothing is remembered of it"


@pytest.mark.usefixtures("keeps")
def test_nobody_is_remembered_who_won_for_want_of_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert tried(monkeypatch, folder, budget_s=0)[0] == ["eager"]
    assert tried(monkeypatch, folder)[0] == ["eager", "middling", "quick"]


@pytest.mark.usefixtures("keeps")
def test_a_damaged_or_foreign_note_is_no_winner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    tried(monkeypatch, folder)
    (note,) = folder.glob("*.json")
    for text in ("", "[]", '{"winner": 3}', '{"winner": "gone", "since": ""}'):
        note.write_text(text, encoding="utf-8")
        assert len(tried(monkeypatch, folder)[0]) == 3, text
    note.chmod(0o666)
    assert len(tried(monkeypatch, folder)[0]) == 3


@pytest.mark.usefixtures("keeps")
def test_the_compiler_is_started_where_it_will_find_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(warm_start, "start_compiler", lambda: begun.append("compiler"))
    monkeypatch.setattr(warm_start, "wake_libraries", lambda _: begun.append("libraries"))
    tried(monkeypatch, tmp_path / "kept")
    assert not begun, "nothing is known of this model, and torch will be busy for long"
    tried(monkeypatch, tmp_path / "kept")
    assert begun == ["libraries", "compiler"], "what needs no interpreter first"


def test_a_model_whose_shapes_come_with_the_first_call_has_a_key() -> None:
    lazy, filled = torch.nn.LazyLinear(2), torch.nn.LazyLinear(2)
    filled(torch.ones(1, 3))
    assert len({key_of(model, rs.resolve("fast")) for model in (lazy, filled)}) == 2
