"""`rocsolid trace --ranks`: the straggler, child processes and Ray."""

import json
import warnings
from pathlib import Path

import pytest
from tests.support import ROOT, clean_environ, run_cli, run_python
from tests.trace.data import LAYOUTS, Event, environ_without, kernel

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import trace_ranks
from rocsolid.errors import CannotRunError
from rocsolid.trace import ranks


def write_rank(folder: Path, rank: int, compute: str) -> Path:
    events: list[Event] = [
        kernel("10.000", compute, 1),
        kernel("200.000", "50.000", 2, name="ncclDevKernel_Generic_1(x)", args={"stream": 3}),
    ]
    text = LAYOUTS["kineto"](events).replace(
        '"schemaVersion": 1', f'"schemaVersion": 1, "distributedInfo": {{"rank": {rank}}}'
    )
    (folder / f"rank{rank}.json").write_text(text)
    return folder / f"rank{rank}.json"


def test_the_slowest_rank_is_a_finding(tmp_path: Path) -> None:
    for rank, compute in enumerate(("80.000", "81.000", "80.500", "99.000")):
        write_rank(tmp_path, rank, compute)
    (tmp_path / "notes.json").write_text("{}")
    report, errors = trace_ranks([tmp_path])
    ran = run_cli("trace", str(tmp_path), "--ranks", "--output", "json")

    assert report.ranks
    assert next((row.rank, row.compute_ns, row.exposed_ns) for row in report.ranks.rows) == (3, 99_000, 50_000)
    assert [f.subject for f in report.findings if f.code == "TRC012"] == ["rank 3"]
    assert len(errors) == 1
    assert 'is not a trace: it has no "traceEvents" list' in errors[0]
    assert ran.json()["ranks"]["rows"][0]["rank"] == 3
    assert "notes.json is not a trace" in ran.err
    assert "rank 3" in run_cli("trace", str(tmp_path), "--ranks").out


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    ran = run_cli("trace", str(tmp_path), "--ranks")

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "has no traces" in ran.err
    assert "is a folder; give a file in it" in run_cli("trace", str(tmp_path)).err
    assert run_cli("trace", str(tmp_path), "--ranks", "--stacks").code == 2


def test_forked_and_started_processes_return_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with more than one thread is not forked."""
    for rank in range(3):
        write_rank(tmp_path, rank, f"8{rank}.000")
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    results = []
    for one_thread in (True, False):
        monkeypatch.setattr(ranks, "_has_one_thread", lambda one_thread=one_thread: one_thread)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn: pytest has other threads
            results.append(trace_ranks([tmp_path]))

    assert results[0] == results[1]
    assert [file.rank for file in results[0][0].files] == [0, 1, 2]


def test_a_child_process_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        write_rank(tmp_path, rank, "8.000")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(ranks, "_has_one_thread", lambda: False)
    monkeypatch.setattr("sys.executable", "/bin/false")

    with pytest.raises(CannotRunError, match="a child process that reads ranks exited with 1"):
        trace_ranks([tmp_path])


RAY = """
import json, os, sys
from pathlib import Path
import ray
from rocsolid.api.trace import trace_ranks
os.chdir(sys.argv[1])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
here = trace_ranks([Path("ranks")])
there = trace_ranks([Path("ranks")], engine="ray")
print(json.dumps([here == there, len(there[0].files), there[1], ray.is_initialized()]))
"""


def test_ray_returns_the_same_as_processes(tmp_path: Path) -> None:
    """Two workers of a real Ray cluster on this machine; file names are those that the caller gave."""
    pytest.importorskip("ray")
    (tmp_path / "ranks").mkdir()
    for rank in range(4):
        write_rank(tmp_path / "ranks", rank, f"8{rank}.000")
    (tmp_path / "ranks/notes.json").write_text("{}")
    (tmp_path / "go.py").write_text(RAY)
    env = clean_environ(PYTHONPATH=str(ROOT / "src"), RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    ran = run_python(str(tmp_path / "go.py"), str(tmp_path), env=env)

    assert ran.code == 0, ran.err
    same, files, errors, running = json.loads(ran.out.splitlines()[-1])
    assert (same, files, len(errors), running) == (True, 4, 1, True)


def test_without_ray_the_error_names_the_extra(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, "1.000")
    ran = run_cli("trace", str(tmp_path), "--ranks", "--engine", "ray", env=environ_without(tmp_path, "ray"))

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: --engine ray needs an optional package: pip install 'rocsolid[ray]'\n",
    )
