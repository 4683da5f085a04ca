"""`rocsolid trace`: output, exit codes and error messages."""

import json
import sys
from pathlib import Path

import pytest
from tests.support import run_cli, run_python
from tests.trace.data import LAYOUTS, call, kernel

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

NAMES = {
    "kernel_count", "kernel_time_ns", "span_ns", "busy_ns", "idle_ns", "copy_count", "copy_bytes", "graph_launches",
    "graph_kernel_count", "graph_kernel_time_ns", "skipped_events",
}  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    events = [
        call("5.000", "2.000", 1),
        kernel("10.000", "10.000", 1),
        call("30.000", "2.000", 2),
        kernel("50.000", "10.000", 2),
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    return tmp_path / "t.json"


def test_json_has_the_metrics_and_can_be_rendered_again(trace: Path) -> None:
    ran = run_cli("trace", str(trace), "--output", "json")
    (device,) = ran.json()["files"][0]["devices"]

    assert ran.json()["schema"] == "rocsolid/trace/1"
    assert set(device) >= NAMES
    assert (device["kernel_count"], device["idle_ns"]) == (2, 30_000)
    saved = trace.with_name("report.json")
    saved.write_text(ran.out)
    again = run_cli("report", str(saved), "--output", "json")
    assert json.loads(again.out) == ran.json()
    assert run_cli("report", str(saved)).out == run_cli("trace", str(trace)).out
    assert "no output format 'sarif'" in run_cli("report", str(saved), "--output", "sarif").err


def test_text_has_metrics_causes_and_findings(trace: Path) -> None:
    ran = run_cli("trace", str(trace))

    assert ran.code == 0
    for part in ("device 0 · A chip", "idle           30.00 µs (60.0 %)", "late-launch", "attn_fwd", "TRC001"):
        assert part in ran.out


def test_exit_code_1_with_findings(trace: Path) -> None:
    assert run_cli("trace", str(trace), "--fail-on", "warning").code == 1
    assert run_cli("trace", str(trace), "--fail-on", "warning", "--allow", "launch-bound").code == 0


def test_damage_is_reported_on_stderr(trace: Path) -> None:
    trace.write_text(trace.read_text()[:-200])
    ran = run_cli("trace", str(trace), "--output", "json")

    assert ran.code == 0
    assert ran.err.startswith(
        f"rocsolid: {trace}: the file is truncated: the list of events does not end; 1 event skipped"
    )
    assert ran.json()["findings"][0]["code"] in ("TRC001", "TRC008")


@pytest.mark.parametrize(
    ("content", "message"),
    [("<html>", "is a web page, not a trace"), ("", "is empty"), ('{"a": 1}', "is not a trace: it has no")],
)
def test_other_files_are_a_one_line_error_with_exit_code_2(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    ran = run_cli("trace", str(tmp_path / "x.json"))

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert message in ran.err


def test_a_missing_file() -> None:
    ran = run_cli("trace", "no-such.json")

    assert (ran.code, ran.err) == (2, "rocsolid: error: cannot read no-such.json: No such file or directory\n")


def test_a_missing_extra_is_a_one_line_error(trace: Path) -> None:
    script = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'msgspec' else find(name, *a)\n"
        f"from rocsolid.cli.app import run\nsys.exit(run(['trace', {str(trace)!r}]))"
    )
    ran = run_python("-c", script, python=sys.executable)

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: reading traces needs an optional package: pip install 'rocsolid[trace]'\n",
    )
