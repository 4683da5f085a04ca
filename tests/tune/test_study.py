"""Studies: which variant is tried next, what is stored, and what the user gets."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, make_env, run_cli, running, until

from rocsolid.api.tune import _study_config, keep_out_of_git
from rocsolid.catalog.profiles import resolve
from rocsolid.errors import InputError, MissingExtraError, UnknownNameError
from rocsolid.measure.process_race import ProcessRaceResult
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.study import MEASURED, TrialRecord
from rocsolid.model.timing import Timing, Verdict
from rocsolid.tune.final_race import choose_winner, select_finalists
from rocsolid.tune.search import make_search
from rocsolid.tune.space import Restrictions, Space, build_space, variant_name
from rocsolid.tune.sqlite_store import SqliteStore
from rocsolid.tune.study import estimate_effects

WORKLOAD = f"{Path(__file__).with_name('workloads.py')}:switchable"
FUSION = "process.TRITON_DEFAULT_FP_FUSION"
IS_PROGRESS = re.compile(r"\d+ s of \d+ s: ")  # printed every 10 s, on a slow machine
OPTIONS = ["--set", "form=eager", "--search", "exhaustive", "--deadline", "build=5", "--rounds", "8", "--budget", "4m"]


def small_space() -> Space:
    env = make_env(platform=Platform.CPU)
    names = ("form", "inductor.freezing", "inductor.aggressive_fusion", "inductor.max_fusion_size")
    return build_space(resolve("fast", env), env, Restrictions(vary=dict.fromkeys(names, ())))


def a_trial(number: int, choices: dict[str, Any], ms: float | None, **given: Any) -> TrialRecord:
    timing = Timing(median_ms=ms, low_ms=ms, high_ms=ms, samples=8) if ms else None
    kind = MEASURED if ms else "crashed"
    return TrialRecord(number=number, name=variant_name(choices), choices=choices, kind=kind, timing=timing, **given)


def run_search(search: str, cost: Any, most: int = 100) -> list[TrialRecord]:
    """The trials of a search with times from `cost`; None is a crash."""
    space = small_space()
    next_variant = make_search(search, space)
    done: list[TrialRecord] = []
    while len(done) < most and (choices := next_variant(done)) is not None:
        done.append(a_trial(len(done) + 1, choices, cost(choices)))
    return done


def cost(choices: dict[str, Any]) -> float | None:
    """Freezing and fusion help, together more than alone; a larger limit crashes; eager is slow."""
    if choices.get("inductor.max_fusion_size") == 128:
        return None
    ms = 20.0 if choices.get("form") == "eager" else 10.0
    return ms - 2 * bool(choices.get("inductor.freezing")) - 1 * bool(choices.get("inductor.aggressive_fusion"))


@pytest.mark.parametrize("search", ["one-at-a-time", "exhaustive", "tpe"])
def test_search_finds_the_best_and_tries_nothing_twice(search: str) -> None:
    if search == "tpe":
        pytest.importorskip("optuna")
    done = run_search(search, cost)
    names = [trial.name for trial in done]
    best = min((t for t in done if t.timing), key=lambda t: t.timing.median_ms if t.timing else 0.0)

    assert names[0] == "baseline"
    assert len(names) == len(set(names))
    assert best.choices["inductor.freezing"] is True
    assert best.choices["inductor.aggressive_fusion"] is True


@pytest.mark.parametrize("search", ["exhaustive", "tpe"])
def test_small_space_is_searched_completely(search: str) -> None:
    if search == "tpe":
        pytest.importorskip("optuna")
    assert len(run_search(search, cost)) == len(list(small_space().all_variants())) == 17


@pytest.mark.parametrize("second", ["memory", "setup"])
def test_tpe_searches_with_two_objectives(second: str) -> None:
    pytest.importorskip("optuna")
    space = small_space()
    next_variant = make_search("tpe", space, second_objective=second)
    done: list[TrialRecord] = []
    while (choices := next_variant(done)) is not None:
        costs = 9 if choices.get("inductor.freezing") else 1
        done.append(a_trial(len(done) + 1, choices, cost(choices), setup_s=costs, peak_bytes=costs))

    assert len(done) == 17  # the whole space, and nothing is tried twice
    with pytest.raises(UnknownNameError, match="unknown second objective 'colour'; choose one of memory, setup"):
        make_search("tpe", space, second_objective="colour")


def test_values_are_tried_in_a_compiled_form_even_if_eager_is_faster() -> None:
    done = run_search("one-at-a-time", lambda choices: 1.0 if choices.get("form") == "eager" else 2.0)

    assert "inductor.freezing=True" in [trial.name for trial in done]


def test_search_continues_where_it_was() -> None:
    space = small_space()
    whole = run_search("one-at-a-time", cost)
    again = make_search("one-at-a-time", space)(whole[:4])

    assert again is not None
    assert variant_name(again) == whole[4].name


def test_trials_of_a_larger_space_are_reused() -> None:
    pytest.importorskip("optuna")
    env = make_env(platform=Platform.CPU)
    vary = {"form": ("compiled",), "inductor.max_fusion_size": ("16", "32")}
    narrow = build_space(resolve("fast", env), env, Restrictions(vary=vary))
    done = [trial for trial in run_search("exhaustive", cost) if narrow.contains(trial.choices)]
    next_variant = make_search("tpe", narrow)
    names = set()
    while (choices := next_variant(done)) is not None:
        names.add(variant_name(choices))
        done.append(a_trial(len(done), choices, 5.0))

    assert names == {"inductor.max_fusion_size=16", "inductor.max_fusion_size=32"}


def test_study_key_depends_on_the_baseline(tmp_path: Path) -> None:
    env = make_env(platform=Platform.CPU)
    keys = {
        _study_config(WORKLOAD, resolve("fast", env), env, Restrictions(fixed=fixed), tmp_path / "tune.db", None)[1]
        for fixed in ({}, {"form": "eager"}, {"form": "compiled"}, {"inductor.freezing": "1"})
    }

    assert len(keys) == 3  # the baseline is compiled by default


def test_missing_optuna_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rocsolid\[tune\]'"):
        make_search("tpe", small_space())
    with pytest.raises(UnknownNameError, match="unknown search 'random'"):
        make_search("random", small_space())


def test_effect_of_each_value() -> None:
    found = {effect.id: effect for effect in estimate_effects(small_space(), run_search("exhaustive", cost))}

    assert found["form"].speedup < 1
    assert found["inductor.freezing"].speedup == pytest.approx(10 / 8, rel=0.05)
    assert found["inductor.freezing"].pairs == 4  # whole and regional, with the other and without
    assert "inductor.max_fusion_size" not in found


def test_selection_of_the_finalists() -> None:
    trials = [
        a_trial(1, {"form": "eager"}, 9.0),
        a_trial(2, {}, 4.0),
        a_trial(3, {"a": 1, "b": 1}, 2.9),
        a_trial(4, {"a": 1}, 3.0),
        a_trial(5, {"b": 1}, None),
    ]

    assert [t.number for t in select_finalists(trials, 4)] == [2, 4, 3]
    assert [t.number for t in select_finalists(trials, 2)] == [2, 3]
    assert [t.number for t in select_finalists([trials[0], trials[4]], 4)] == [1]
    assert select_finalists([trials[4]], 4) == []


class Completed:
    """A finalist that completed the race."""

    failure = ""


def choose(times: dict[str, float], control: float = 1.0) -> Any:
    finalists = [a_trial(n, {} if name == "baseline" else {name: 1}, ms) for n, (name, ms) in enumerate(times.items())]
    samples = {
        t.name: tuple(ms * (1 + r % 3 / 1e3) for r in range(40))
        for t, ms in zip(finalists, times.values(), strict=True)
    }
    race = ProcessRaceResult(samples_ms=samples, control_ms=(control,) * 40, baseline="baseline", fastest="")
    statuses: Any = {t.name: Completed() for t in finalists}
    return choose_winner(finalists, race, statuses, 0.02)


def test_tie_goes_to_the_variant_with_fewer_changes() -> None:
    winner, verdict, reason = choose({"baseline": 1.0, "x": 0.995})
    assert (winner.name, verdict, reason) == (
        "baseline",
        Verdict.SAME,
        "no variant is faster than the baseline by more than the noise",
    )

    winner, verdict, reason = choose({"baseline": 1.0, "x": 0.80, "y": 0.799})
    assert (winner.name, verdict) == ("x=1", Verdict.FASTER)
    assert reason.startswith("1.25 times as fast as the baseline")

    _, verdict, reason = choose({"baseline": 1.0, "x": 0.5}, control=1.3)
    assert verdict is Verdict.FASTER
    assert "measure again on a machine with less other load" in reason

    winner, verdict, reason = choose({"baseline": 1.0, "x": 9.0}, control=1.3)
    assert (winner.name, verdict) == ("baseline", Verdict.UNSURE)
    assert reason == (
        "no variant is clearly faster than the baseline, and the measurement is noisy (processes that run the same variant differ by 35%): "
        "measure again on a machine with less other load"
    )


def test_store_saves_finished_and_releases_unfinished_trials(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "tune.db"
    store = SqliteStore(file, "key", "w.py:build")
    assert store.claim("baseline") == 1
    assert store.claim("baseline") is None
    store.save(a_trial(1, {}, 3.0, samples_ms=(1.0, 2.0)))
    assert store.claim("a=1") == 2
    store.release(2)
    assert store.claim("a=1") == 2

    with closing(SqliteStore(file, "another", "w.py:build")) as other:
        assert other.finished() == []
    with closing(SqliteStore(file, "key", "w.py:build")) as again:
        assert again.finished() == [a_trial(1, {}, 3.0, samples_ms=(1.0, 2.0))]
        assert again.claim("a=1") is None  # the first tuner still runs
        store.close()
        assert again.claim("a=1") == 2
        again.clear()
        assert again.finished() == []
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_trial_of_a_killed_tuner_is_released(tmp_path: Path) -> None:
    file = tmp_path / "tune.db"
    code = f"from rocsolid.tune.sqlite_store import SqliteStore\nfrom pathlib import Path\ns = SqliteStore(Path({str(file)!r}), 'k', 'w'); s.claim('baseline')"
    subprocess.run([sys.executable, "-c", f"{code}\nimport os; os._exit(0)"], env=clean_environ(), check=True)

    assert len(list(tmp_path.glob("*.alive"))) == 1
    with closing(SqliteStore(file, "k", "w")) as store:
        assert store.claim("baseline") == 1
    assert not list(tmp_path.glob("*.alive"))


def test_default_folder_is_ignored_by_git(tmp_path: Path) -> None:
    keep_out_of_git(tmp_path / ".rocsolid")
    keep_out_of_git(tmp_path / "studies")

    assert [file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()] == [
        ".rocsolid/.gitignore"
    ]


def test_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE precious (x)")
    theirs.close()
    with pytest.raises(InputError, match="not a rocsolid study"):
        SqliteStore(file, "k", "w")
    (tmp_path / "text.db").write_text("not a database at all" * 100)
    with pytest.raises(InputError, match="cannot store the study in"):
        SqliteStore(tmp_path / "text.db", "k", "w")


@pytest.mark.torch
def test_study_resumes_after_a_kill_and_classifies_bad_variants(tmp_path: Path) -> None:
    """A whole study: interrupted, killed, resumed, and its plan loaded."""
    study, plan, saved = tmp_path / "tune.db", tmp_path / "plan.toml", tmp_path / "study.json"
    given = ["tune", WORKLOAD, "--vary", f"{FUSION}=hang,fast,wrong,crash", *OPTIONS, "--study", str(study)]
    command = [sys.executable, "-m", "rocsolid", *given]
    for end, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):  # while the second trial hangs
        tuner = subprocess.Popen(command, env=clean_environ(), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert tuner.stderr is not None
        if end is signal.SIGINT:
            lines = (line for line in tuner.stderr if not IS_PROGRESS.match(line))
            assert next(lines).startswith("trial 1 of at most 5: baseline: 4.")
        until(lambda: running(f"{study.parent}/tune/"))
        time.sleep(0.5)
        tuner.send_signal(end)
        _, printed = tuner.communicate(timeout=30)
        assert tuner.returncode == code
        until(lambda: not running(str(tmp_path)))
        assert "trial 1 of" not in printed  # it was saved by the first run
        if end is signal.SIGINT:
            assert printed.endswith(
                "finished trials are saved; run the same command again to continue\nrocsolid: interrupted\n"
            )

    ran = run_cli(*given, "--plan", str(plan), "--output", "json", "--out", str(saved), env=clean_environ())
    assert ran.code == 0, ran.err
    assert "trial 1 of" not in ran.err
    found = json.loads(saved.read_text())
    ends = {trial["name"].partition("=")[2]: trial for trial in found["trials"]}
    assert found["winner"] == f"{FUSION}=fast"
    assert found["verdict"] == "faster"
    assert {name: trial["kind"] for name, trial in ends.items()} == {
        "": "measured",
        "fast": "measured",
        "hang": "timed out",
        "wrong": "wrong result",
        "crash": "crashed",
    }
    assert "in call" in ends["hang"]["stacks"]
    tuned = Plan.load(plan).tuned
    assert tuned is not None
    assert (tuned.form, tuned.graph, tuned.verdict) == ("eager", False, "faster")

    text = run_cli("report", str(saved))
    assert "timed out, phase build took longer than 5 s" in " ".join(text.out.split())  # wherever lines are wrapped
    html = run_cli("report", str(saved), "--output", "html", "--out", str(tmp_path / "study.html"))
    assert html.code == 0, html.err
    assert run_cli("report", str(saved), "--output", "sarif").code == 2


@pytest.mark.torch
def test_ab_finds_a_real_difference(tmp_path: Path) -> None:
    saved = tmp_path / "ab.json"
    sides = ["--a", "form=eager", "--b", f"form=eager,{FUSION}=fast"]
    env = clean_environ()
    ran = run_cli("ab", WORKLOAD, *sides, "--rounds", "8", "--output", "json", "--out", str(saved), env=env)

    assert ran.code == 0, ran.err
    found = json.loads(saved.read_text())
    assert found["b_against_a"]["verdict"] == "faster"
    assert found["b_against_a"]["speedup"] > 1.3
    assert "FASTER: b is " in run_cli("report", str(saved)).out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tune", "nothing.py:build"], "the workload file nothing.py does not exist"),
        (["tune", "nothing.py"], "write a workload as file.py:function, not 'nothing.py'"),
        (
            ["tune", f"{WORKLOAD}y"],
            ": unknown function '",
        ),
        (["tune", WORKLOAD, "--rounds", "3"], "3 rounds are too few for a reliable verdict; give at least 6"),
        (["tune", WORKLOAD, "--trials", "0"], "0 trials are too few; give at least 1"),
        (["tune", WORKLOAD, "--budget", "0"], "the budget is 0 s; give more than 0"),
        (["tune", WORKLOAD, "--plan", "/proc"], "cannot write /proc: it is a folder"),
        (
            ["ab", WORKLOAD, "--a", "fast", "--b", "safe", "--min-gain", "2"],
            "the minimum gain must be a ratio from 0 to 1 (0.02 means 2 %); got 2",
        ),
        (["tune", WORKLOAD, "--vary", "inductor.freezin"], "did you mean 'inductor.freezing'"),
        (["tune", WORKLOAD, "--budget", "soon"], "'soon' is not a time; write 90s, 10m or 2h"),
        (["tune", WORKLOAD, "--memory", "much"], "'much' is not a size; write 500M or 64G"),
        (["tune", WORKLOAD, "--set", "freezing"], "--set takes NAME=VALUE"),
        (["tune", WORKLOAD, "--deadline", "lunch=1h"], "unknown phase 'lunch'"),
        (["ab", WORKLOAD, "--a", "fast", "--b", "quick"], "'quick' is not a profile, a .toml file or values such as"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_clear_message(args: list[str], message: str, tmp_path: Path) -> None:
    ran = run_cli(*args, *(["--study", str(tmp_path / "tune.db")] if args[0] == "tune" else []))

    assert ran.code == 2, ran.err
    assert message in ran.err
    assert len([line for line in ran.err.splitlines() if not IS_PROGRESS.match(line)]) <= 2
