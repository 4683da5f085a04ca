"""The benchmark runner, and the table, plot and page made from its records."""

import contextlib
import json
import math
import subprocess
import sys
import time
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


def test_the_measured_processes_are_not_other_processes() -> None:
    """A child that computes, and one that has ended, belong to the measurement."""
    watch, before = host.HostWatch(), host._own_ticks()
    command = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert host._own_ticks() - before >= 45
        child.communicate(b"\n")
    assert host._own_ticks() - before >= 45
    assert watch.state().steal >= 0


def test_the_frequency_is_that_of_the_fastest_core_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "_CORES", tmp_path)
    assert host._frequency() == 1.0, "unknown"

    def core(number: int, **files: int) -> None:
        folder = tmp_path / f"cpu{number}/cpufreq"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (folder / name).write_text(f"{value}\n")

    for number in (0, 1):
        core(number, cpuinfo_max_freq=4000, scaling_max_freq=4000, scaling_cur_freq=1000)
    assert host._frequency() == 0.25
    core(1, scaling_cur_freq=4000)
    assert host._frequency() == 1.0, "the other core is idle"
    core(0, scaling_max_freq=2000)
    assert host._frequency() == 0.5, "a limit of any core"


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

    eager = {"median_ms": 2.0, "wall_ms": 2.125, "kernels": 70, "device_ms": 1.5, "roofline_ms": 0.1}
    lines = list(quiet_table({"bert": {"eager": eager, "rs.optimize": {"failed": "hung"}}}))
    assert lines[0].split() == ["model", "roofline", "eager,", "wall", "rs.optimize,", "wall"]
    assert lines[1].split() == ["bert", "0.1", "2.000", "2.125", "(1.500", "in", "70)", "failed"]


@pytest.mark.torch
def test_a_quiet_process_measures_by_both_clocks() -> None:
    from benchmarks.quiet import QuietCell

    running = QuietCell("int8_linears", "eager", "cpu", "float32")
    running.begin()
    try:
        running.wait(time.monotonic() + 200)
        for _ in range(2):
            running.measure(time.monotonic() + 60)
    finally:
        running.stop()
    record = running.record()
    assert len(record["rounds_ms"]) == len(running.wall) == 2
    assert 0.5 < record["wall_ms"] / record["median_ms"] < 2


QUIET = {"busy_cores": 0.0, "steal": 0.0, "frequency": 1.0}


@pytest.mark.torch
def test_a_quiet_run_is_continued_until_everything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three calls, each with time for one model; what was measured on a busy host is measured again."""
    from benchmarks import quiet

    now, file, out = [0.0], tmp_path / "runs.json", tmp_path / "record.json"
    measured: list[tuple[str, str]] = []

    def one(model: str, method: str, _: object) -> dict[str, Any]:
        measured.append((model, method))
        now[0] += 30
        noisy = now[0] == 30  # the first process
        return {"median_ms": len(measured), "wall_ms": 2.0 * len(measured), "host": QUIET | {"steal": 0.5 * noisy}}

    monkeypatch.setattr(quiet, "_one", one)
    monkeypatch.setattr(quiet, "fill_caches", lambda *_: {})
    monkeypatch.setattr(quiet, "versions", lambda _: {"device": "a GPU", "torch": "2.11"})
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    command = ["quiet", "--models", "bert", "gpt2", "--methods", "eager", "rs.optimize", "--processes", "1"]

    def call(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", [*command, "--results", str(file), "--minutes", "1.5", *args])
        measured.clear()
        with contextlib.suppress(SystemExit):
            quiet.main()
        return capsys.readouterr().out

    call()
    assert measured == [("bert", "eager"), ("bert", "rs.optimize")]
    call("--out", str(out))
    assert measured == [("bert", "eager")], "the host was busy"
    assert not out.exists()
    call()
    assert measured == [("gpt2", "eager"), ("gpt2", "rs.optimize")]
    printed = call("--out", str(out))
    assert not measured
    record = json.loads(out.read_text())
    assert list(record["models"]) == ["bert", "gpt2"]
    assert record["models"]["gpt2"]["rs.optimize"]["wall_ms"] > 0
    assert "rs.optimize over eager" in printed
    monkeypatch.setattr(sys, "argv", [*command, "--results", str(file), "--dtype", "float16"])
    with pytest.raises(SystemExit, match="measured with something else: dtype: bfloat16, now float16"):
        quiet.main()
