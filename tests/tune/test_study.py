"""Studies: what is tried next, what is kept, and what a user gets in the end."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, make_env, run_cli, running, until

from rocsolid.api.tune import _job, keep_out_of_git
from rocsolid.catalog.profiles import resolve
from rocsolid.errors import InputError, MissingExtraError, UnknownNameError
from rocsolid.measure.process_race import Knockout
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.study import MEASURED, TrialRecord
from rocsolid.model.timing import Timing, Verdict
from rocsolid.tune.final_race import finalists_of, judge
from rocsolid.tune.search import search_of
from rocsolid.tune.space import Narrowing, Space, name_of, space_of
from rocsolid.tune.sqlite_store import FileStore
from rocsolid.tune.study import effects_of

WORKLOAD = f"{Path(__file__).with_name('workloads.py')}:moody"
FUSION = "process.TRITON_DEFAULT_FP_FUSION"
OPTIONS = ["--set", "form=eager", "--search", "exhaustive", "--deadline", "build=5", "--rounds", "8", "--budget", "4m"]


def small_space() -> Space:
    env = make_env(platform=Platform.CPU)
    names = ("form", "inductor.freezing", "inductor.aggressive_fusion", "inductor.max_fusion_size")
    return space_of(resolve("fast", env), env, Narrowing(vary=dict.fromkeys(names, ())))


def a_trial(number: int, choices: dict[str, Any], ms: float | None, **given: Any) -> TrialRecord:
    timing = Timing(median_ms=ms, low_ms=ms, high_ms=ms, samples=8) if ms else None
    kind = MEASURED if ms else "crashed"
    return TrialRecord(number=number, name=name_of(choices), choices=choices, kind=kind, timing=timing, **given)


def searched(search: str, cost: Any, most: int = 100) -> list[TrialRecord]:
    """A study with made-up times; None is a crash."""
    space = small_space()
    following = search_of(search, space)
    done: list[TrialRecord] = []
    while len(done) < most and (choices := following(done)) is not None:
        done.append(a_trial(len(done) + 1, choices, cost(choices)))
    return done


def cost(choices: dict[str, Any]) -> float | None:
    """Freezing and fusion help, together more than alone; a larger limit crashes; eager is slow."""
    if choices.get("inductor.max_fusion_size") == 128:
        return None
    ms = 20.0 if choices.get("form") == "eager" else 10.0
    return ms - 2 * bool(choices.get("inductor.freezing")) - 1 * bool(choices.get("inductor.aggressive_fusion"))


@pytest.mark.parametrize("search", ["one-at-a-time", "exhaustive", "tpe"])
def test_every_search_finds_the_best_and_tries_nothing_twice(search: str) -> None:
    if search == "tpe":
        pytest.importorskip("optuna")
    done = searched(search, cost)
    names = [trial.name for trial in done]
    best = min((t for t in done if t.timing), key=lambda t: t.timing.median_ms if t.timing else 0.0)

    assert names[0] == "start"
    assert len(names) == len(set(names))
    assert best.choices["inductor.freezing"] is True
    assert best.choices["inductor.aggressive_fusion"] is True


@pytest.mark.parametrize("search", ["exhaustive", "tpe"])
def test_a_small_space_is_gone_through_whole(search: str) -> None:
    if search == "tpe":
        pytest.importorskip("optuna")
    assert len(searched(search, cost)) == len(list(small_space().every())) == 17


@pytest.mark.parametrize("second", ["memory", "setup"])
def test_tpe_searches_with_two_objectives(second: str) -> None:
    pytest.importorskip("optuna")
    space = small_space()
    following = search_of("tpe", space, second=second)
    done: list[TrialRecord] = []
    while (choices := following(done)) is not None:
        dear = 9 if choices.get("inductor.freezing") else 1
        done.append(a_trial(len(done) + 1, choices, cost(choices), setup_s=dear, peak_bytes=dear))

    assert len(done) == 17  # both are minimised over the same space, and nothing is tried twice
    with pytest.raises(UnknownNameError, match="unknown second objective 'colour'; choose one of memory, setup"):
        search_of("tpe", space, second="colour")


def test_values_are_tried_in_a_compiled_form_also_when_eager_is_faster() -> None:
    done = searched("one-at-a-time", lambda choices: 1.0 if choices.get("form") == "eager" else 2.0)

    assert "inductor.freezing=True" in [trial.name for trial in done]


def test_a_search_goes_on_where_it_was() -> None:
    space = small_space()
    whole = searched("one-at-a-time", cost)
    again = search_of("one-at-a-time", space)(whole[:4])

    assert again is not None
    assert name_of(again) == whole[4].name


def test_what_was_tried_in_a_wider_space_teaches_the_narrower_one() -> None:
    pytest.importorskip("optuna")
    env = make_env(platform=Platform.CPU)
    vary = {"form": ("compiled",), "inductor.max_fusion_size": ("16", "32")}
    narrow = space_of(resolve("fast", env), env, Narrowing(vary=vary))
    done = [trial for trial in searched("exhaustive", cost) if narrow.holds(trial.choices)]
    following = search_of("tpe", narrow)
    names = set()
    while (choices := following(done)) is not None:
        names.add(name_of(choices))
        done.append(a_trial(len(done), choices, 5.0))

    assert names == {"inductor.max_fusion_size=16", "inductor.max_fusion_size=32"}


def test_what_start_means_is_part_of_the_study(tmp_path: Path) -> None:
    env = make_env(platform=Platform.CPU)
    keys = {
        _job(WORKLOAD, resolve("fast", env), env, Narrowing(fixed=fixed), tmp_path / "tune.db", None)[1]
        for fixed in ({}, {"form": "eager"}, {"form": "compiled"}, {"inductor.freezing": "1"})
    }

    assert len(keys) == 3  # compiled is where a study starts by itself


def test_a_missing_extra_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rocsolid\[tune\]'"):
        search_of("tpe", small_space())
    with pytest.raises(UnknownNameError, match="unknown search 'random'"):
        search_of("random", small_space())


def test_what_each_value_is_worth() -> None:
    found = {effect.id: effect for effect in effects_of(small_space(), searched("exhaustive", cost))}

    assert found["form"].speedup < 1
    assert found["inductor.freezing"].speedup == pytest.approx(10 / 8, rel=0.05)
    assert found["inductor.freezing"].pairs == 4  # whole and regional, with the other and without
    assert "inductor.max_fusion_size" not in found


def test_who_goes_to_the_finals() -> None:
    trials = [
        a_trial(1, {"form": "eager"}, 9.0),
        a_trial(2, {}, 4.0),
        a_trial(3, {"a": 1, "b": 1}, 2.9),
        a_trial(4, {"a": 1}, 3.0),
        a_trial(5, {"b": 1}, None),
    ]

    assert [t.number for t in finalists_of(trials, 4)] == [2, 4, 3]
    assert [t.number for t in finalists_of(trials, 2)] == [2, 3]
    assert [t.number for t in finalists_of([trials[0], trials[4]], 4)] == [1]
    assert finalists_of([trials[4]], 4) == []


class Lasted:
    """A lane that was never put out."""

    out = ""


def judged(times: dict[str, float], control: float = 1.0) -> Any:
    entrants = [a_trial(n, {} if name == "start" else {name: 1}, ms) for n, (name, ms) in enumerate(times.items())]
    samples = {
        t.name: tuple(ms * (1 + r % 3 / 1e3) for r in range(40)) for t, ms in zip(entrants, times.values(), strict=True)
    }
    raced = Knockout(samples_ms=samples, control_ms=(control,) * 40, baseline="start", leader="")
    lanes: Any = {t.name: Lasted() for t in entrants}
    return judge(entrants, raced, lanes, 0.02)


def test_a_tie_goes_to_the_simpler_and_the_start_is_the_simplest() -> None:
    winner, verdict, why = judged({"start": 1.0, "x": 0.995})
    assert (winner.name, verdict, why) == ("start", Verdict.SAME, "nothing else was faster beyond the noise")

    winner, verdict, why = judged({"start": 1.0, "x": 0.80, "y": 0.799})
    assert (winner.name, verdict) == ("x=1", Verdict.FASTER)
    assert why.startswith("1.25 times as fast as the start")

    _, verdict, why = judged({"start": 1.0, "x": 0.5}, control=1.3)
    assert verdict is Verdict.FASTER
    assert "measure again on a quieter machine" in why

    winner, verdict, why = judged({"start": 1.0, "x": 9.0}, control=1.3)
    assert (winner.name, verdict) == ("start", Verdict.UNSURE)
    assert why == (
        "nothing else was surely faster, but equal processes differed by 35%, so measure again on a quieter machine"
    )


def test_the_store_keeps_what_ended_and_frees_what_did_not(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "tune.db"
    store = FileStore(file, "key", "w.py:build")
    assert store.claim("start") == 1
    assert store.claim("start") is None
    store.keep(a_trial(1, {}, 3.0, samples_ms=(1.0, 2.0)))
    assert store.claim("a=1") == 2
    store.give_up(2)
    assert store.claim("a=1") == 2

    with closing(FileStore(file, "another", "w.py:build")) as other:
        assert other.done() == []
    with closing(FileStore(file, "key", "w.py:build")) as again:
        assert again.done() == [a_trial(1, {}, 3.0, samples_ms=(1.0, 2.0))]
        assert again.claim("a=1") is None  # the first one lives
        store.close()
        assert again.claim("a=1") == 2
        again.forget()
        assert again.done() == []
    assert [kept.name for kept in file.parent.iterdir()] == [file.name]


def test_a_trial_of_a_tuner_that_was_killed_is_free_again(tmp_path: Path) -> None:
    file = tmp_path / "tune.db"
    code = f"from rocsolid.tune.sqlite_store import FileStore\nfrom pathlib import Path\ns = FileStore(Path({str(file)!r}), 'k', 'w'); s.claim('start')"
    subprocess.run([sys.executable, "-c", f"{code}\nimport os; os._exit(0)"], env=clean_environ(), check=True)

    assert len(list(tmp_path.glob("*.alive"))) == 1
    with closing(FileStore(file, "k", "w")) as store:
        assert store.claim("start") == 1
    assert not list(tmp_path.glob("*.alive"))


def test_our_own_folder_stays_out_of_the_users_repository(tmp_path: Path) -> None:
    keep_out_of_git(tmp_path / ".rocsolid")
    keep_out_of_git(tmp_path / "studies")

    assert [file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()] == [
        ".rocsolid/.gitignore"
    ]


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE precious (x)")
    theirs.close()
    with pytest.raises(InputError, match="no study of rocsolid's"):
        FileStore(file, "k", "w")
    (tmp_path / "text.db").write_text("not a database at all" * 100)
    with pytest.raises(InputError, match="cannot keep the study in"):
        FileStore(tmp_path / "text.db", "k", "w")


@pytest.mark.torch
def test_a_study_survives_a_kill_and_names_what_hangs_crashes_and_lies(tmp_path: Path) -> None:
    """The whole way, as a user goes it: killed in the middle, resumed, and the plan used."""
    study, plan, saved = tmp_path / "tune.db", tmp_path / "plan.toml", tmp_path / "study.json"
    given = ["tune", WORKLOAD, "--vary", f"{FUSION}=hang,fast,wrong,crash", *OPTIONS, "--study", str(study)]
    command = [sys.executable, "-m", "rocsolid", *given]
    for end, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):  # while the second hangs
        tuner = subprocess.Popen(command, env=clean_environ(), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert tuner.stderr is not None
        if end is signal.SIGINT:
            assert tuner.stderr.readline().startswith("1: start: 4.")
        until(lambda: running(f"{study.parent}/tune/"))
        time.sleep(0.5)
        tuner.send_signal(end)
        _, said = tuner.communicate(timeout=30)
        assert tuner.returncode == code
        until(lambda: not running(str(tmp_path)))
        assert "1: start" not in said  # it was kept
        if end is signal.SIGINT:
            assert said == "what was tried is kept; the same command goes on from there\nrocsolid: interrupted\n"

    ran = run_cli(*given, "--plan", str(plan), "--output", "json", "--out", str(saved), env=clean_environ())
    assert ran.code == 0, ran.err
    assert "1: start" not in ran.err  # it was kept
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
    assert "timed out, phase build took longer than 5 s" in " ".join(text.out.split())  # however wide the terminal
    html = run_cli("report", str(saved), "--output", "html", "--out", str(tmp_path / "study.html"))
    assert html.code == 0, html.err
    assert run_cli("report", str(saved), "--output", "sarif").code == 2


@pytest.mark.torch
def test_ab_finds_a_planted_difference(tmp_path: Path) -> None:
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
    ("args", "said"),
    [
        (["tune", "nothing.py:build"], "the workload's file nothing.py does not exist"),
        (["tune", "nothing.py"], "a workload is file.py:function"),
        (
            ["tune", f"{WORKLOAD}y"],
            "the workload fails before anything is varied: UnknownNameError: unknown function in",
        ),
        (["tune", WORKLOAD, "--rounds", "3"], "3 rounds are too few to be sure of anything; give at least 6"),
        (["tune", WORKLOAD, "--trials", "0"], "0 trials find nothing; give at least 1"),
        (["tune", WORKLOAD, "--budget", "0"], "a budget of 0 s is none"),
        (["tune", WORKLOAD, "--plan", "/proc"], "cannot write /proc: it is a folder"),
        (["ab", WORKLOAD, "--a", "fast", "--b", "safe", "--least-gain", "2"], "the least gain is a ratio such as 0.02"),
        (["tune", WORKLOAD, "--vary", "inductor.freezin"], "did you mean 'inductor.freezing'"),
        (["tune", WORKLOAD, "--budget", "soon"], "'soon' is not a time; write 90s, 10m or 2h"),
        (["tune", WORKLOAD, "--memory", "much"], "'much' is not a size; write 500M or 64G"),
        (["tune", WORKLOAD, "--set", "freezing"], "--set takes name=value"),
        (["tune", WORKLOAD, "--deadline", "lunch=1h"], "unknown phase 'lunch'"),
        (["ab", WORKLOAD, "--a", "fast", "--b", "quick"], "'quick' is neither a profile, nor a plan.toml, nor values"),
    ],
)
def test_wrong_usage_is_one_line(args: list[str], said: str, tmp_path: Path) -> None:
    ran = run_cli(*args, *(["--study", str(tmp_path / "tune.db")] if args[0] == "tune" else []))

    assert ran.code == 2, ran.err
    assert said in ran.err
    assert ran.err.count("\n") == 1
