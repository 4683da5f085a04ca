"""The benchmark runner, and the table, plot and page made from its records."""

import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from benchmarks.draw import drawn, mean_gain, page, table
from tests.support import ROOT, clean_environ

from benchmarks import host
from rocsolid.api.dryrun import MODES

RECORD = {
    "device": "A <chip>",
    "torch": "2.13",
    "date": "2026-11-15",
    "dtype": "bfloat16",
    "models": {
        "one": {
            "eager": {"median_ms": 8.0},
            "reduce-overhead": {"median_ms": 2.0},
            "rs.optimize": {"median_ms": 1.0, "chosen": "compiled + graph"},
        },
        "two": {
            "eager": {"median_ms": 4.0},
            "reduce-overhead": {"failed": "not set up in time"},
            "rs.optimize": {"median_ms": 2.0, "chosen": "eager + graph"},
        },
    },
}


def test_mean_is_geometric_over_models_with_both_times() -> None:
    assert mean_gain(RECORD, "eager") == pytest.approx(4.0)
    assert mean_gain(RECORD, "reduce-overhead") == pytest.approx(2.0)
    assert mean_gain({"models": {}}, "eager") is None


def test_table_marks_failures() -> None:
    lines = table(RECORD).splitlines()
    assert lines[2] == "| one | 8.000 | 2.000 | 1.000 | compiled + graph | 2.00 | 8.00 |"
    assert lines[3] == "| two | 4.000 | failed | 2.000 | eager + graph |  | 2.00 |"
    assert lines[4].endswith("| 2.00 | 4.00 |")


def test_plot_has_a_bar_for_each_measurement() -> None:
    picture = ET.fromstring(drawn(RECORD))  # noqa: S314 - our own
    titles = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        "one, reduce-overhead: 4.00 times eager, 2.0 ms",
        "one, rs.optimize: 8.00 times eager, 1.0 ms",
        "two, rs.optimize: 2.00 times eager, 2.0 ms",
    ]
    assert "A &lt;chip&gt;" in drawn(RECORD)


def test_model_with_wrong_results_is_left_out_of_the_mean() -> None:
    candidates = {
        "eager": {"outcome": "slower", "why": ""},
        "compiled": {"outcome": "wrong", "why": "it is 13% off"},
        "eager + graph": {"outcome": "chosen", "why": ""},
    }
    drifts = {
        "eager": {"median_ms": 9.0, "error": 0.2},
        "reduce-overhead": {"median_ms": 1.0, "error": 0.3},
        "rs.optimize": {"median_ms": 3.0, "chosen": "eager + graph", "candidates": candidates},
    }
    models = {**RECORD["models"], "drifts": drifts}  # type: ignore[dict-item]
    about = {"python": "3.12", "notes": ["a note"], "command": "one && two"}
    looped = {
        "loop": {"eager": {"median_ms": 6.0}, "reduce-overhead": {"median_ms": 3.0}, "rs.capture": {"median_ms": 2.0}}
    }
    tuned = {
        "one": {"max-autotune": {"median_ms": 3.0}, "rs.optimize": {"median_ms": 2.0, "chosen": "compiled + graph"}},
        "endless": {"max-autotune": {"failed": "not set up in time"}, "rs.optimize": {"median_ms": 2.0}},
        "drifts": {"max-autotune": {"median_ms": 1.0}, "rs.optimize": drifts["rs.optimize"]},
    }
    by_hand = {
        "hand": {
            "eager": {"median_ms": 8.0},
            "graph by hand": {"median_ms": 1.0},
            "rs.optimize": {"median_ms": 2.0, "chosen": "compiled + graph"},
        }
    }
    quiet, many, autotuned, programs = (
        {**RECORD, **about, "models": found} for found in (by_hand, models, tuned, looped)
    )
    text = page(quiet, many, "plot.svg", autotuned, programs)
    assert "| hand | 8.000 | 1.000 | 2.000 | compiled + graph | 0.50 | 4.00 |" in text
    assert "| one | 3.000 | 2.000 | compiled + graph | 1.50 |" in text
    assert "| endless | failed | 2.000 |  |  |" in text
    assert "In the geometric mean over 1 models `rs.optimize` is 1.50 times as fast, and at least 1.50 times" in text
    assert "| geometric mean without drifts |  |  |  | 1.50 |" in text
    assert "| geometric mean without drifts |  |  |  |  | 2.00 | 4.00 |" in text
    assert "| loop | 6.000 | 3.000 | 2.000 | 1.50 | 3.00 |" in text
    assert "is 2.00 times as fast as `reduce-overhead` and 4.00 times as fast as eager (2 models)" in text
    assert 'drifts is left out of the mean: compiled, it is 13% off, so `rs.optimize` chose "eager + graph"' in text
    assert "$ one\n$ two\n" in text


@pytest.mark.torch
def test_every_torch_mode_can_be_measured_and_drawn() -> None:
    from benchmarks.cell import METHODS

    modes = {"compile" if mode == "default" else mode for mode in MODES}
    assert modes <= set(METHODS)
    models = {"one": {method: {"median_ms": 1.0} for method in ("eager", *modes)}}
    assert all(f"one, {mode}: 1.00 times eager" in drawn({**RECORD, "models": models}) for mode in modes)


def ran(out: Path, *args: str) -> tuple[dict[str, Any], str]:
    """The results of one model on the CPU, and the printed output."""
    command = [sys.executable, "-m", "benchmarks.run", "--device", "cpu", "--dtype", "float32", "--rounds", "2"]
    command += ["--models", "int8_linears", "--out", str(out), *args]
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environ(), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())["models"]["int8_linears"], done.stdout


@pytest.mark.torch
def test_late_and_never_started_are_distinguished(tmp_path: Path) -> None:
    found, _ = ran(tmp_path / "record.json", "--methods", "eager", "compile", "--at-once", "1", "--deadline", "0.2")
    assert found == {"eager": {"failed": "not set up in time"}, "compile": {"failed": "not started in time"}}


@pytest.mark.torch
def test_cpu_run_measures_every_cell_and_records_failures(tmp_path: Path) -> None:
    methods = ("--methods", "eager", "make_graphed_callables", "--at-once", "1")
    found, printed = ran(tmp_path / "record.json", *methods)
    assert len(found["eager"]["rounds_ms"]) == 2
    assert found["eager"]["error"] == 0
    assert found["make_graphed_callables"]["failed"]
    assert "| int8_linears |" in printed


@pytest.mark.torch
def test_quiet_record_is_drawn_with_its_gain() -> None:
    from benchmarks.quiet import METHODS, draw, mean_gain

    models = {"a<b": {method: {"median_ms": 2.0} for method in METHODS}}
    models["a<b"]["rs.optimize"] = {"median_ms": 1.0}
    assert mean_gain(models, "reduce-overhead") == pytest.approx(2.0)
    assert math.isnan(mean_gain({}, "eager"))
    picture = draw({**RECORD, "dtype": "bfloat16", "models": models})
    assert "a&lt;b" in picture
    assert "2.00x as fast as reduce-overhead" in picture


def test_a_busy_host_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(host, "_STAT", stat)

    def state(*ticks: int) -> host.HostState:
        stat.write_text("cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 1\n")
        later = "cpu  " + " ".join(str(a + b) for a, b in zip((100, 0, 100, 1000, 0, 0, 0, 0), ticks, strict=True))
        with monkeypatch.context() as patch:
            patch.setattr("benchmarks.host.time.sleep", lambda _: stat.write_text(f"{later} 0 0\n"))
            patch.setattr("benchmarks.host.time.monotonic", iter((0.0, 1.0)).__next__)
            return host.host_state()

    assert state(2, 0, 3, 195, 0, 0, 0, 0).noisy == ""
    assert state(150, 0, 50, 0, 0, 0, 0, 0).noisy == "other processes use 2.0 cores"
    assert state(0, 0, 0, 190, 0, 0, 0, 10).noisy == "the hypervisor gives 5% of the time to others"
    assert host.HostState(frequency=0.5).noisy == "the cores run at 50% of their highest frequency"
    worst = host.HostState(busy_cores=1.0).worse(host.HostState(steal=0.2, frequency=0.9))
    assert worst == host.HostState(busy_cores=1.0, steal=0.2, frequency=0.9)
    stat.unlink()
    assert host.host_state(0.0) == host.HostState()


@pytest.mark.torch
def test_the_work_of_a_model_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from benchmarks.cell import work_of

    layer = torch.nn.Linear(64, 32, bias=False)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 64), layer, torch.nn.ReLU())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    with work_of(model) as work:
        for _ in range(2):  # weights are read again in each call
            model(torch.zeros(4, dtype=torch.long))
    assert work.roofline_ms(2) == round(2 * 64 * 32 * 2 / 4.8e12 * 1e3, 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another")
    assert work.roofline_ms(2) is None


@pytest.mark.torch
def test_the_table_of_a_quiet_run_has_kernels_and_the_roofline() -> None:
    from benchmarks.quiet import table as quiet_table

    eager = {"median_ms": 2.0, "kernels": 70, "device_ms": 1.5, "roofline_ms": 0.1}
    lines = list(quiet_table({"bert": {"eager": eager, "rs.optimize": {"failed": "hung"}}}))
    assert lines[0].split() == ["model", "roofline", "eager", "rs.optimize"]
    assert lines[1].split() == ["bert", "0.1", "2.000", "(1.500", "in", "70)", "failed"]
