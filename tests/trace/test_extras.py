"""Ranks, Python lines, Perfetto, Parquet, and workloads that are profiled."""

import gzip
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, clean_environ, run_cli, run_python
from tests.trace.data import LAYOUTS, Event, call, host, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import read_traces, trace_ranks
from rocsolid.errors import CannotRunError
from rocsolid.trace import ranks
from rocsolid.trace.analysis import answer
from rocsolid.trace.read import read_trace

WORKLOAD = """
import torch

def build():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    return model, (torch.randn(4, 16),), {}

def broken():
    raise RuntimeError("no such weights")
"""


PLAIN = """
def build():
    return (lambda: None), (), {}
"""


def a_rank(folder: Path, rank: int, compute: str) -> Path:
    events: list[Event] = [
        kernel("10.000", compute, 1),
        kernel("200.000", "50.000", 2, name="ncclDevKernel_Generic_1(x)", args={"stream": 3}),
    ]
    text = LAYOUTS["kineto"](events).replace(
        '"schemaVersion": 1', f'"schemaVersion": 1, "distributedInfo": {{"rank": {rank}}}'
    )
    (folder / f"rank{rank}.json").write_text(text)
    return folder / f"rank{rank}.json"


def test_the_straggler_among_ranks(tmp_path: Path) -> None:
    for rank, compute in enumerate(("80.000", "81.000", "80.500", "99.000")):
        a_rank(tmp_path, rank, compute)
    (tmp_path / "notes.json").write_text("{}")
    record, refused = trace_ranks([tmp_path])
    ran = run_cli("trace", str(tmp_path), "--ranks", "--output", "json")

    assert record.ranks
    assert next((row.rank, row.compute_ns, row.exposed_ns) for row in record.ranks.rows) == (3, 99_000, 50_000)
    assert [f.subject for f in record.findings if f.code == "TRC012"] == ["rank 3"]
    assert len(refused) == 1
    assert "holds no list of trace events" in refused[0]
    assert ran.json()["ranks"]["rows"][0]["rank"] == 3
    assert "notes.json holds no list" in ran.err
    assert "rank 3" in run_cli("trace", str(tmp_path), "--ranks").out


def test_an_empty_folder_of_ranks_is_refused(tmp_path: Path) -> None:
    ran = run_cli("trace", str(tmp_path), "--ranks")

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "holds no trace" in ran.err
    assert "is a folder; name a file in it" in run_cli("trace", str(tmp_path)).err
    assert run_cli("trace", str(tmp_path), "--ranks", "--stacks").code == 2


def test_ranks_read_by_copies_and_by_processes_that_start_anew_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another thread runs, as it does in most programs, nothing is forked."""
    for rank in range(3):
        a_rank(tmp_path, rank, f"8{rank}.000")
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    seen = []
    for alone in (True, False):
        monkeypatch.setattr(ranks, "_one_thread", lambda alone=alone: alone)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later: there are threads after all
            seen.append(trace_ranks([tmp_path]))

    assert seen[0] == seen[1]
    assert [file.rank for file in seen[0][0].files] == [0, 1, 2]


def test_a_process_that_dies_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        a_rank(tmp_path, rank, "8.000")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(ranks, "_one_thread", lambda: False)
    monkeypatch.setattr("sys.executable", "/bin/false")

    with pytest.raises(CannotRunError, match="a process that read ranks ended with 1"):
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


def test_ray_gives_the_same_answers(tmp_path: Path) -> None:
    """Two workers of a real Ray on this machine; files are named as the caller sees them."""
    pytest.importorskip("ray")
    (tmp_path / "ranks").mkdir()
    for rank in range(4):
        a_rank(tmp_path / "ranks", rank, f"8{rank}.000")
    (tmp_path / "ranks/notes.json").write_text("{}")
    (tmp_path / "go.py").write_text(RAY)
    env = clean_environ(PYTHONPATH=str(ROOT / "src"), RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    ran = run_python(str(tmp_path / "go.py"), str(tmp_path), env=env)

    assert ran.code == 0, ran.err
    same, files, refused, running = json.loads(ran.out.splitlines()[-1])
    assert (same, files, len(refused), running) == (True, 4, 1, True)


def environ_without(folder: Path, package: str) -> dict[str, str]:
    """Variables of a process that does not find a package, whether it is installed or not."""
    (folder / "hidden").mkdir()
    (folder / f"hidden/{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    return clean_environ(PYTHONPATH=f"{folder / 'hidden'}{os.pathsep}{ROOT / 'src'}")


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    a_rank(tmp_path, 0, "1.000")
    ran = run_cli("trace", str(tmp_path), "--ranks", "--engine", "ray", env=environ_without(tmp_path, "ray"))

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: --engine ray needs an optional package: pip install 'rocsolid[ray]'\n",
    )


def test_the_line_that_launched_a_kernel(tmp_path: Path) -> None:
    events = [
        host("python_function", "train.py(10): step", "1.000", "90.000"),
        host("python_function", "model.py(42): forward", "2.000", "50.000"),
        host("python_function", "torch/nn/modules/linear.py(130): forward", "3.000", "20.000"),
        call("5.000", "1.000", 1),
        call("60.000", "1.000", 2),
        kernel("10.000", "5.000", 1, name="one"),
        kernel("70.000", "5.000", 2, name="two"),
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    (device,) = read_traces([tmp_path / "t.json"], stacks=True).record.files[0].devices

    assert {row.name: row.place for row in device.kernels} == {
        "one": "model.py(42): forward",
        "two": "train.py(10): step",
    }


def test_lines_of_a_real_trace() -> None:
    file = real("mi300x_bert-small.json.gz")
    (device,) = read_traces([file], stacks=True).record.files[0].devices

    assert sum(bool(row.place) for row in device.kernels) > 0.9 * len(device.kernels)
    assert any("bert/modeling_bert.py" in row.place for row in device.kernels)


def checked_for_perfetto(out: Path) -> list[dict[str, Any]]:
    """The rules of Chrome's JSON trace format that Perfetto holds a file to; its own reader is not to be had here."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    events: list[dict[str, Any]] = json.loads(gzip.decompress(out.read_bytes()), parse_constant=refuse)["traceEvents"]
    slices: dict[tuple[int, int], list[tuple[int, int]]] = {}
    named = {(e["pid"], e["tid"] if e["name"] == "thread_name" else None) for e in events if e["ph"] == "M"}
    for event in events:
        assert (type(event["name"]), type(event["pid"]), type(event["tid"])) == (str, int, int)
        assert isinstance(event.get("args", {}), dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert event["args"]["name"]
            continue
        assert event["ts"] >= 0
        assert (event["pid"], None) in named
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
            continue
        assert event["ph"] == "X"
        assert event["dur"] >= 0
        assert (event["pid"], event["tid"]) in named
        start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
        assert event["ts"] == start / 1000  # nothing below a nanosecond was lost or made up
        slices.setdefault((event["pid"], event["tid"]), []).append((start, start + length))
    for found in slices.values():
        around: list[int] = []
        for start, end in sorted(found, key=lambda slice_: (slice_[0], -slice_[1])):
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1], "slices of a thread must be nested"
            around.append(end)
    return events


@pytest.mark.parametrize("name", ["mi300x_bert-small.json.gz", "v100_ns_resolution.json.gz"])
def test_a_real_trace_for_perfetto_keeps_the_rules_of_the_format(tmp_path: Path, name: str) -> None:
    out = tmp_path / "p.json.gz"
    found = read_traces([real(name)], perfetto=out).record
    events = checked_for_perfetto(out)
    (device,) = found.files[0].devices
    work = [e for e in events if e["ph"] == "X" and e["pid"] == int(device.device)]

    assert len(work) == device.kernel_count + device.copy_count + device.set_count
    assert max(round((e["ts"] + e["dur"]) * 1000) for e in work) - min(round(e["ts"] * 1000) for e in work) == (
        pytest.approx(device.span_ns, abs=1)
    )
    assert len([e for e in events if e["name"].startswith("idle: ")]) == len(device.gaps)
    assert {e["name"][:6] for e in events if e["ph"] == "i"} == {f.code for f in found.findings}


def test_what_overlaps_on_a_stream_gets_a_lane_of_its_own(tmp_path: Path) -> None:
    crossing = [kernel("10.000", "10.000", 1), kernel("15.000", "10.000", 2), kernel("30.000", "5.000", 3)]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](crossing))
    read_traces([tmp_path / "t.json"], perfetto=tmp_path / "p.json.gz")
    events = checked_for_perfetto(tmp_path / "p.json.gz")

    lanes = [e["tid"] for e in events if e["ph"] == "X" and e["name"] == "attn_fwd"]
    assert lanes[0] == lanes[2] != lanes[1]
    assert any("(overlapping)" in str(e.get("args")) for e in events)


def test_perfetto_gets_the_same_events_with_gaps_and_findings(tmp_path: Path) -> None:
    events = [
        call("5.000", "2.000", 1),
        kernel("10.000", "10.000", 1),
        call("30.000", "2.000", 2),
        kernel("50.000", "10.000", 2),
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    out = tmp_path / "p.json.gz"
    ran = run_cli("trace", str(tmp_path / "t.json"), "--open-perfetto", str(out))
    written = checked_for_perfetto(out)
    again = [e for e in written if e["ph"] == "X"]

    assert ran.code == 0, ran.err
    assert {(e["name"], e["ts"], e["dur"]) for e in again} >= {
        ("attn_fwd", 10.0, 10.0),
        ("idle: host-late", 20.0, 30.0),
    }
    assert any(e["name"].startswith("TRC001") for e in written if e["ph"] == "i")


def test_parquet_for_other_tools(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"]([kernel("10.000", "10.000", 1)]))
    read_traces([tmp_path / "t.json"], parquet=tmp_path / "out")
    rows = parquet.read_table(tmp_path / "out/device.parquet").to_pylist()

    assert [(r["name"], r["start"], r["end"]) for r in rows] == [("attn_fwd", 10_000, 20_000)]


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"]([kernel("10.000", "10.000", 1)]))
    env = environ_without(tmp_path, "pyarrow")
    ran = run_cli("trace", str(tmp_path / "t.json"), "--parquet", str(tmp_path / "out"), env=env)

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: writing Parquet needs an optional package: pip install 'rocsolid[parquet]'\n",
    )


@pytest.mark.torch
def test_a_workload_is_profiled_and_answered(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(WORKLOAD)
    file = tmp_path / "out/trace.json.gz"
    ran = run_cli(
        "profile",
        f"{tmp_path}/w.py:build",
        "--trace",
        str(file),
        "--steps",
        "2",
        "--stacks",
        "--memory",
        "--output",
        "json",
    )

    assert ran.code == 0, ran.err
    assert "a step takes " in ran.err
    assert "under the profiler" in ran.err
    (trace,) = ran.json()["files"]
    assert [step["name"] for step in trace["steps"]] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert trace["skipped_events"] == 0
    columns = read_trace(file)
    assert "aten::addmm" in columns.names
    assert columns.set_aside["python_function"] > 0
    assert answer(file, columns).damage == ()


@pytest.mark.torch
def test_a_workload_that_fails_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(WORKLOAD)
    ran = run_cli("profile", f"{tmp_path}/w.py:broken")

    assert ran.code == 2
    assert "no such weights" in ran.err
    assert "Traceback" not in ran.err


TOOL = """#!{python}
import json, pathlib, subprocess, sys
at = sys.argv.index("--")
options, command = sys.argv[1:at], sys.argv[at + 1:]
if subprocess.run(command).returncode: sys.exit(7)
folder, name = pathlib.Path(options[options.index("-d") + 1]), options[options.index("-o") + 1]
if "--pmc" in options:
    asked = options[options.index("--pmc") + 1:options.index("--output-format")]
    if "TCC_HIT_sum" in asked:
        print("Request exceeds the capabilities of the hardware to collect")
        sys.exit(1)
    values = {{"OccupancyPercent": 50, "L2CacheHit": 75, "FETCH_SIZE": 96, "WRITE_SIZE": 32}}
    text = '"Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value"\\n'
    text += "".join('1,4,"k","%s",%s\\n' % (counter, values.get(counter, 64)) for counter in asked)
    (folder / (name + "_counter_collection.csv")).write_text(text)
    agents = '"Node_Id","Agent_Type","Product_Name","Cu_Count","Max_Waves_Per_Cu"\\n4,"GPU","AMD Instinct MI300X",304,32\\n'
    (folder / (name + "_agent_info.csv")).write_text(agents)
else:
    record = {{"start_timestamp": 100, "end_timestamp": 300, "dispatch_info": {{"kernel_id": 1, "agent_id": {{"handle": 2}}}}}}
    symbols = [{{"kernel_id": 1, "formatted_kernel_name": "k"}}]
    tool = {{"kernel_symbols": symbols, "buffer_records": {{"kernel_dispatch": [record]}}}}
    (folder / (name + "_results.json")).write_text(json.dumps({{"rocprofiler-sdk-tool": [tool]}}))
"""


def with_tool(folder: Path) -> dict[str, str]:
    """An environment in which the stand-in is found."""
    tool = folder / "bin/rocprofv3"
    tool.parent.mkdir()
    tool.write_text(TOOL.format(python=sys.executable))
    tool.chmod(0o755)
    return clean_environ(PATH=f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def test_rocprof_is_driven_and_its_files_are_read(tmp_path: Path) -> None:
    """Against a stand-in that runs the command and writes what the real tool would."""
    (tmp_path / "w.py").write_text(PLAIN)
    env = with_tool(tmp_path)
    options = ["--trace", str(tmp_path / "trace.json.gz"), "--rocprof", "--counter", "SQ_WAVES", "--output", "json"]
    ran = run_cli("profile", f"{tmp_path}/w.py:build", *options, env=env)

    assert ran.code == 0, ran.err
    (file,) = ran.json()["files"]
    assert file["devices"][0]["kernel_time_ns"] == 200
    assert file["counters"] == [{"kernel": "k", "counter": "SQ_WAVES", "count": 1, "mean": 64.0, "time_ns": None}]
    assert [Path(name).name for name in file["joined"]] == ["counters_counter_collection.csv"]


def test_rocprof_counts_what_the_figures_need_in_runs_of_their_own(tmp_path: Path) -> None:
    """The stand-in refuses one set, as chips do that cannot count so much at once; another is asked for in its place."""
    (tmp_path / "w.py").write_text(PLAIN)
    env = with_tool(tmp_path)
    options = ["--trace", str(tmp_path / "trace.json.gz"), "--rocprof"]
    ran = run_cli("profile", f"{tmp_path}/w.py:build", *options, "--output", "json", env=env)

    assert ran.code == 0, ran.err
    (file,) = ran.json()["files"]
    assert len(file["joined"]) == 3
    (use,) = file["hardware"]["kernels"]
    moved = (96 + 32) * 1024
    assert (use["occupancy"], use["l2_hit"], use["bytes"], use["time_ns"]) == (0.5, 0.75, moved, 200.0)
    assert use["gb_per_s"] == pytest.approx(moved / 200)
    assert use["of_peak"] == pytest.approx(moved / 200 / 5324.8)
    assert file["hardware"]["unknown"] == []
    assert "TCC_HIT_sum, TCC_MISS_sum could not be counted: rocprofv3 ended with 1: Request exceeds" in ran.err

    plain = run_cli("profile", f"{tmp_path}/w.py:build", *options, "--no-counters", "--output", "json", env=env)
    assert (plain.code, plain.json()["files"][0]["hardware"]) == (0, None)


@pytest.mark.torch
def test_without_rocprof_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(WORKLOAD)
    ran = run_cli("profile", f"{tmp_path}/w.py:build", "--rocprof", env=clean_environ(PATH="/nowhere"))

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: rocprofv3 is not installed; it comes with ROCm (package rocprofiler-sdk)\n",
    )
