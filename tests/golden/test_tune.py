"""Messages of `rocsolid tune`, `rocsolid ab` and workloads, as users see them."""

import io
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, check_golden, make_env
from tests.tune.test_engine import ScriptedEngine, make_config, took
from tests.tune.test_report import a_study, timing

from rocsolid.api.tune import _check_numbers, _make_engine, _parse_side, ab, tune
from rocsolid.cli import main
from rocsolid.cli.tune import show_progress, trial_line
from rocsolid.errors import RocsolidError
from rocsolid.measure.load_workload import load_workload
from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions
from rocsolid.model import trial_result
from rocsolid.model.platform import Platform
from rocsolid.model.study import ABResult, TrialRecord
from rocsolid.model.timing import SpeedComparison, Verdict
from rocsolid.model.trial_result import (
    Cancelled,
    Crashed,
    DeviceLost,
    Memory,
    OutOfMemory,
    Raised,
    Returned,
    TimedOut,
    TooManyProcesses,
    TrialCost,
    TrialResult,
    Unkillable,
    WrongResult,
)
from rocsolid.report.progress import step_line
from rocsolid.report.study_text import ab_text, study_text
from rocsolid.report.terminal import Terminal
from rocsolid.tune import final_race
from rocsolid.tune.ab_test import run_ab_test
from rocsolid.tune.effort import Effort, Progress, TrialUpdate
from rocsolid.tune.final_race import FinalistStatus, choose_winner
from rocsolid.tune.isolate.classify_exit import classify_exit
from rocsolid.tune.screening import Screening, merge_measurements
from rocsolid.tune.search import make_search
from rocsolid.tune.space import Restrictions, build_space, read_restrictions
from rocsolid.tune.sqlite_store import SqliteStore, read_sqlite
from rocsolid.tune.study import _nothing_measured

WORKLOAD = str(ROOT / "tests/tune/workloads.py") + ":layers"


def test_study_report() -> None:
    check_golden("tune/study", study_text(a_study(), Terminal()))


def test_verbose_study_report() -> None:
    check_golden("tune/study-verbose", study_text(a_study(), Terminal(), verbose=True))


def test_ab_report() -> None:
    found = SpeedComparison(speedup=1.25, low=1.2, high=1.31, verdict=Verdict.FASTER, noise=0.012)
    result = ABResult(
        workload="/models/gpt.py:build",
        a="fast",
        b="inductor.freezing=true",
        timing_a=timing(2.1),
        timing_b=timing(1.7),
        b_against_a=found,
        rounds=24,
        processes=4,
        machine={"device": "MI300X", "torch": "2.13.0"},
    )
    check_golden("tune/ab", f"{ab_text(result, Terminal())}\nstr(): {result}")


def test_reason_of_every_trial_result() -> None:
    examples: list[TrialResult] = [
        Returned(value=1),
        Returned(value=1, clean=False, message="SIGSEGV"),
        WrongResult(
            phase="verify",
            message="wrong on input set 1: result: relative error 1.4e-01 against the reference, rounding explains 2.1e-07",
        ),
        TimedOut(phase="compile", limit_s=600),
        TimedOut(phase="compile", limit_s=60, silent=True),
        Crashed(phase="capture", signal="SIGSEGV"),
        Crashed(phase="build", message="exit code 3 without a result"),
        OutOfMemory(phase="compile", memory=Memory.HOST, message="3 processes used 65800 MB, the limit is 65536 MB"),
        OutOfMemory(phase="measure", memory=Memory.DEVICE, message="OutOfMemoryError: HIP out of memory."),
        DeviceLost(phase="measure", message="Memory access fault by GPU node-1 on address 0x7f."),
        Raised(phase="compile", message="RuntimeError: no such lowering"),
        TooManyProcesses(phase="compile", message="513 processes, the limit is 512"),
        Cancelled(phase="compile", message="the tuner process ended unexpectedly"),
        Unkillable(phase="measure", message="timed out, and these processes cannot be killed: 4711 (state D)"),
    ]
    kinds = {kind for kind in vars(trial_result).values() if isinstance(kind, type) and issubclass(kind, TrialResult)}
    assert {type(example) for example in examples} == kinds - {TrialResult}
    check_golden("tune/trial-results", "\n".join(f"{example.kind}: {example.reason}" for example in examples))


def test_classified_exits() -> None:
    nothing: dict[str, Any] = {"cause": None, "returned": False, "error": None, "log_tail": "", "oom_kills": 0}
    cases: list[dict[str, Any]] = [
        {"code": -9, "oom_kills": 1},
        {"code": -9},
        {"code": -6, "log_tail": "HW Exception by GPU node-1 : HW exception from scratch\n"},
        {"code": 1, "error": {"type": "RuntimeError", "message": "HIP error: invalid device function"}},
        {"code": 1, "error": {"type": "RuntimeError", "message": "CUDA error: an illegal memory access"}},
        {"code": 1, "error": {"type": "OutOfMemoryError", "message": "HIP out of memory. Tried to allocate 20 GiB."}},
        {"code": 1, "error": {"type": "MemoryError", "message": ""}},
        {"code": 0},
    ]
    results = {kind.kind: kind for kind in TrialResult.__subclasses__()}
    lines = []
    for case in cases:
        fields = classify_exit(**{**nothing, "phase": "measure", **case})
        kind = results[fields.pop("kind")]
        if "memory" in fields:
            fields["memory"] = Memory(fields["memory"])
        lines.append(f"{kind.kind}: {kind(**fields).reason}")
    check_golden("tune/classified-exits", "\n".join(lines))


def a_record(**fields: Any) -> TrialRecord:
    given: dict[str, Any] = {
        "number": 3,
        "name": "inductor.freezing=True",
        "choices": {"inductor.freezing": True},
        "kind": "measured",
    }
    return TrialRecord(**{**given, **fields})


def test_trial_lines() -> None:
    baseline = a_record(number=1, name="baseline", choices={}, timing=timing(2.0))
    fast = a_record(timing=timing(1.7))
    hung = a_record(number=4, name="form=eager", kind="timed out", reason="phase compile took longer than 600 s")
    lines = []
    for finished in ([hung], [baseline], [baseline, fast], [baseline, fast, hung]):
        update = TrialUpdate(record=finished[-1], finished=finished, max_trials=12, elapsed_s=62.0, left_s=358.0)
        lines.append(trial_line(update)[0])
    measured = [a_record(timing=timing(ms)) for ms in (0.5, 0.6, 1.9)]
    lines += [merge_measurements(measured[0], second).reason for second in (*measured[1:], hung)]
    check_golden("tune/trial-lines", "\n".join(lines))


def test_progress_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status messages of a study and of an A/B test, and the line that shows them."""
    statuses: list[str] = []
    progress = Progress(on_status=statuses.append)
    config = make_config(tmp_path)
    results: dict[str, list[TrialResult | None]] = {"": [took(10.0)], "1": [took(2.0), took(9.0)]}
    results |= {value: [took(9.5)] for value in "2345"}

    class Reporting(ScriptedEngine):
        def start(self, number: int, spec: Any, folder: Path, on_phase: Callable[[str], None]) -> None:
            super().start(number, spec, folder, on_phase)
            on_phase("compile")

    store = SqliteStore(tmp_path / "tune.db", "k", "w")
    Screening(config, make_search("exhaustive", config.space), store, Reporting(results), Effort()).run(progress)
    store.close()

    from tests.tune import test_ab_test

    monkeypatch.setattr(test_ab_test.ab_test, "VariantProcess", test_ab_test.FakeProcess)
    monkeypatch.setattr(test_ab_test.FakeProcess, "offsets", 0.3)
    statuses.append("")
    sides: Any = (("a", test_ab_test.FakeConfig, {"ms": 1.0}), ("b", test_ab_test.FakeConfig, {"ms": 1.0}))
    run_ab_test(
        sides, replace(test_ab_test.OPTIONS, rounds=8), 0.02, lambda step: statuses.append(step_line(step, 5.0))
    )

    monkeypatch.setattr(final_race, "VariantProcess", test_ab_test.FakeProcess)
    statuses.append("")
    finalists = [a_record(name=name, choices={"ms": ms}) for name, ms in (("baseline", 2.0), ("x=1", 1.0))]
    options = RaceOptions(rounds=2, budget_s=300.0)
    final_race.run_final_race(config, finalists, options, lambda text: statuses.append(f"final comparison: {text}"))

    from rocsolid.report import progress as progress_line

    monkeypatch.setattr(progress_line, "_FIRST_LINE_S", 0.3)
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    with show_progress(600.0) as reporting:
        reporting.on_trial(
            TrialUpdate(record=a_record(timing=timing(1.7)), finished=[a_record(timing=timing(1.7))], max_trials=12, elapsed_s=62.0, left_s=358.0)
        )  # fmt: skip
        reporting.on_status("trial 4 of at most 12: form=eager, phase compile")
        time.sleep(0.7)
    shown_text = re.sub(r"\d+ s of 600 s", "62 s of 600 s", written.getvalue())
    lines = list(dict.fromkeys(shown_text.splitlines()))
    check_golden(
        "tune/progress",
        "\n".join([*statuses, "", *lines]),
        replace={r"about \d+ s": "about 5 s", r"(?m)most \d+ s left$": "most 290 s left"},
    )


def test_winner_reasons() -> None:
    def reason(times: dict[str, float], control: float = 1.0, failure: str = "", spread: float = 1e-3) -> str:
        finalists = [a_record(name=name, timing=timing(ms)) for name, ms in times.items()]
        samples = {name: tuple(ms * (1 + r % 3 * spread) for r in range(40)) for name, ms in times.items()}
        race = ProcessRaceResult(samples_ms=samples, control_ms=(control,) * 40, baseline="baseline", fastest="")
        statuses = {name: FinalistStatus(failure=failure) for name in times}
        winner, verdict, why = choose_winner(finalists, race, statuses, 0.02)
        return f"{verdict.name}, winner {winner.name}: {why}"

    lines = [
        reason({"baseline": 1.0, "x=1": 0.8}),
        reason({"baseline": 1.0, "x=1": 0.5}, control=1.3),
        reason({"baseline": 1.0, "x=1": 0.995}),
        reason({"baseline": 1.0, "x=1": 9.0}, control=1.3),
        reason({"baseline": 1.0, "x=1": 0.95}, control=1.06),
        reason({"baseline": 1.0, "x=1": 0.8}, failure="crashed: SIGSEGV in phase measure"),
    ]
    check_golden("tune/winner", "\n".join(lines))


def caught(call: Callable[[], object]) -> str:
    with pytest.raises(RocsolidError) as error:
        call()
    return f"{type(error.value).__name__}: {error.value}"


def test_usage_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(Platform.CUDA)
    cpu = make_env(Platform.CPU)
    plan = a_study().best

    def space(**given: Any) -> object:
        return build_space(plan, env, Restrictions(**given))

    def toml(text: str) -> object:
        (tmp_path / "space.toml").write_text(text)
        return read_restrictions(tmp_path / "space.toml")

    (tmp_path / "text.db").write_text("not a database")
    updating = os.environ.get("ROCSOLID_UPDATE", "")
    monkeypatch.delenv("ROCSOLID_UPDATE", raising=False)  # an unknown variable of rocsolid's is an error
    lines = [
        caught(lambda: tune("nothing.py:build")),
        caught(lambda: tune("nothing.py")),
        caught(lambda: ab("nothing.py:build", "safe", "fast")),
        caught(lambda: _parse_side("quick", "fast", cpu)),
        caught(lambda: _check_numbers(3, 0.02)),
        caught(lambda: _check_numbers(24, 2.0)),
        caught(lambda: _check_numbers(24, 0.02, trials=0)),
        caught(lambda: _check_numbers(24, 0.02, budget_s=0)),
        caught(lambda: _make_engine("", env, 0, 0)),
        caught(lambda: _make_engine("", env, -1, 1)),
        caught(lambda: _make_engine("loca", env, 0, 1)),
        caught(lambda: _make_engine("local", env, 0, 4)),
        caught(lambda: space(vary={"inductor.freezin": []})),
        caught(lambda: space(vary={"form": ["half"]})),
        caught(lambda: space(vary={"inductor.memory_planning": []})),
        caught(lambda: toml("[vray]")),
        caught(lambda: toml("exclude = 'graph'")),
        caught(lambda: toml("set = 3")),
        caught(lambda: toml("vary.inductor.freezing = true")),
        caught(lambda: read_restrictions(tmp_path / "none.toml")),
        caught(lambda: make_search("random", make_config(tmp_path).space)),
        caught(lambda: make_search("tpe", make_config(tmp_path).space, second_objective="colour")),
        caught(lambda: list(read_sqlite(tmp_path / "none.db"))),
        caught(lambda: list(read_sqlite(tmp_path / "text.db"))),
    ]
    monkeypatch.setitem(sys.modules, "optuna", None)
    lines.append(caught(lambda: make_search("tpe", make_config(tmp_path).space)))
    monkeypatch.setenv("ROCSOLID_UPDATE", updating)
    check_golden("tune/usage-errors", "\n".join(lines), replace={str(tmp_path): "<folder>"})


def test_usage_errors_of_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    updating = os.environ.get("ROCSOLID_UPDATE", "")
    monkeypatch.delenv("ROCSOLID_UPDATE", raising=False)
    commands = [
        ["tune", WORKLOAD, "second.py:build"],
        ["tune", WORKLOAD, "--plan", "/proc"],
        ["tune", WORKLOAD, "--set", "freezing"],
        ["tune", WORKLOAD, "--deadline", "lunch=1h"],
        ["tune", "export", str(tmp_path / "none.json")],
        ["tune", "dashboard", "--study", str(tmp_path / "none.db")],
        ["ab", WORKLOAD, "--a", "fast", "--b", "quick"],
        ["ab", WORKLOAD, "--a", "fast", "--b", "safe", "--rounds", "3"],
    ]
    lines = []
    for command in commands:
        code = main(command)
        text = " ".join(command).replace(WORKLOAD, "model.py:build")
        lines.append(f"$ rocsolid {text}\n{capsys.readouterr().err.rstrip()}\nexit code {code}\n")
    monkeypatch.setenv("ROCSOLID_UPDATE", updating)
    check_golden("tune/command-errors", "\n".join(lines), replace={str(tmp_path): "<folder>"})


def test_failed_studies(tmp_path: Path) -> None:
    def run(result: TrialResult) -> str:
        config = make_config(tmp_path)
        store = SqliteStore(tmp_path / f"{type(result).__name__}.db", "k", "w")
        engine = ScriptedEngine({value: [result] for value in ("", *"12345")})
        screening = Screening(config, make_search("exhaustive", config.space), store, engine, Effort())
        try:
            return caught(lambda: screening.run(Progress()))
        finally:
            store.close()

    cost = TrialCost(log=".rocsolid/tune/0123456789ab/trials/1/log.txt")
    lines = [
        run(Raised(phase="build", message="InputError: the workload model.py:build failed at line 7: KeyError: 'w'", cost=cost)),
        run(DeviceLost(phase="measure", message="Memory access fault by GPU node-1 on address 0x7f.")),
        run(Unkillable(phase="measure", message="timed out, and these processes cannot be killed: 4711 (state D)")),
        f"CannotRunError: {_nothing_measured(a_study().rejected)}",
        f"CannotRunError: {_nothing_measured([])}",
    ]  # fmt: skip
    check_golden("tune/failed-studies", "\n".join(lines))


def test_workload_errors(tmp_path: Path) -> None:
    def load(body: str) -> str:
        file = tmp_path / "work.py"
        file.write_text(f"import math\n\n\ndef build():\n    {body}\n")
        return caught(lambda: load_workload(f"{file}:build"))

    bodies = ["return 3", "return print, ()", "return 3, (), {}", "return print, 3, {}", "return print, (), {1: 2}"]
    bodies += ["raise ValueError('no weights')", "import no_such_package", "return print, (), {"]
    lines = [load(body) for body in bodies]
    lines += [caught(partial(load_workload, name)) for name in ("work.py", "build", f"{tmp_path}:build")]
    (tmp_path / "work.py").write_text("def build(): ...\n")
    lines.append(caught(lambda: load_workload(f"{tmp_path}/work.py:biuld")))
    check_golden("tune/workload-errors", "\n".join(lines), replace={str(tmp_path): "<folder>"})
