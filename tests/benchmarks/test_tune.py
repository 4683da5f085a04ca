"""The script for the bar on a device, as far as it goes without one: planted settings are named, and the record says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import ROOT, clean_environ


@pytest.mark.torch
def test_planted_settings_are_named(tmp_path: Path) -> None:
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
    assert record["planted"] == {"start": "measured", "hang": "timed out", "wrong": "wrong answer"}
    assert {"schema", "what", "command", "date", "device", "torch", "python"} <= record.keys()


@pytest.mark.torch
def test_a_bar_that_is_missed_is_said() -> None:
    from benchmarks.tune import _missed

    slower = {"model": "bert", "against rs.optimize": {"verdict": "slower"}}
    same = {"model": "gpt2", "against rs.optimize": {"verdict": "same"}}
    failed = {"model": "vit", "failed": "left out: 3 s were left"}
    said = list(_missed({"planted": {"start": "measured"}, "models": [slower, same, failed]}))

    assert said == [
        "planted settings came to {'start': 'measured'}",
        "bert: the plan is slower than rs.optimize",
        "vit: left out: 3 s were left",
    ]
