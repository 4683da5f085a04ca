"""The tuning benchmark on the CPU: hanging and wrong settings are classified, and races are timed alone."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import ROOT, clean_environ, until
from tests.tune.test_engine import FUSION, make_config

from rocsolid.measure.process_race import RaceOptions
from rocsolid.model.study import TrialRecord
from rocsolid.tune.ab_test import run_ab_test
from rocsolid.tune.final_race import run_final_race


@pytest.mark.torch
def test_hanging_and_wrong_settings_are_classified(tmp_path: Path) -> None:
    out = tmp_path / "tune.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.tune",
        "--minutes",
        "2",
        "--deadline",
        "5",
        "--out",
        str(out),
        "--models",
    ]
    ran = subprocess.run(command, cwd=ROOT, env=clean_environ(), capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr + ran.stdout
    record = json.loads(out.read_text())
    assert record["planted"] == {"baseline": "measured", "hang": "timed out", "wrong": "wrong result"}
    assert {"schema", "what", "command", "date", "device", "torch", "python"} <= record.keys()


@pytest.mark.torch
def test_missed_targets_are_reported() -> None:
    from benchmarks.tune import _missed

    slower = {"model": "bert", "against rs.optimize": {"verdict": "slower"}}
    same = {"model": "gpt2", "against rs.optimize": {"verdict": "same"}}
    failed = {"model": "vit", "failed": "left out: only 3 s were left"}
    missed = list(_missed({"planted": {"baseline": "measured"}, "models": [slower, same, failed]}))

    assert missed == [
        "planted settings were classified as {'baseline': 'measured'}",
        "bert: the plan is slower than rs.optimize",
        "vit: left out: only 3 s were left",
    ]


@pytest.mark.torch
def test_races_are_set_up_together_and_timed_alone(tmp_path: Path) -> None:
    from benchmarks.tune import Wave

    wave, config, options = Wave(1), make_config(tmp_path), RaceOptions(rounds=2, eliminate=False)
    for race in ("final comparison", "A/B test"):
        seen: list[tuple[bool, bool]] = []
        with wave.race("quick") as on_status:

            def report(text: str) -> None:
                on_status(text)
                seen.append((text.startswith("starting"), wave._timing.locked()))  # noqa: B023

            if race == "final comparison":
                trials = [TrialRecord(number=n, name=str(n), choices={FUSION: str(n)}, kind="measured") for n in (1, 2)]
                run_final_race(config, trials, options, report)
            else:
                sides = (("a", config, {FUSION: "1"}), ("b", replace(config, folder=tmp_path / "b"), {FUSION: "3"}))
                run_ab_test(sides, options, 0.02, lambda step: report(step.what))
        assert len(seen) > 3
        assert all(starting != alone for starting, alone in seen), race
        assert not wave._timing.locked()


@pytest.mark.torch
def test_wave_is_set_up_before_any_race_is_timed() -> None:
    from benchmarks.tune import Wave

    wave, timed, most = Wave(2), [], []

    def race(name: str) -> None:
        with wave.race(name) as on_status:
            on_status("starting, process 1")
            on_status("round 1")
            timed.append(name)
            most.append(len(timed))
            on_status("round 2")
            timed.remove(name)

    first = threading.Thread(target=race, args=("first",))
    first.start()
    until(lambda: wave._barrier.n_waiting == 1)
    assert not timed
    race("second")
    first.join()
    assert most == [1, 1]
