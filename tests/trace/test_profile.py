"""`rocsolid profile` with torch.profiler and with a stand-in for rocprofv3."""

import os
import sys
from pathlib import Path

import pytest
from tests.support import clean_environ, run_cli

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

import rocsolid as rs
from rocsolid.model.workload import Workload
from rocsolid.trace.analysis.analyze import analyze_trace
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


@pytest.mark.torch
def test_a_function_is_profiled_and_its_trace_is_kept_on_request(tmp_path: Path) -> None:
    import torch

    file = tmp_path / "out/trace.json.gz"
    report = rs.profile(torch.matmul, torch.ones(4, 4), other=torch.ones(4, 4), trace_file=file)
    cpu = report.files[0].cpu
    assert cpu is not None
    assert "aten::mm" in [operator.name for operator in cpu.operators]
    assert len(report.files[0].steps) == 3
    assert rs.trace(file).files[0].cpu == cpu
    with pytest.raises(rs.UsageError, match=r"rs\.profile needs a function"):
        rs.profile(3)  # type: ignore[arg-type]


@pytest.mark.torch
def test_a_profile_of_the_cpu_has_the_memory_that_each_operator_allocated() -> None:
    import torch

    (file,) = rs.profile(lambda x: torch.mm(x, x).relu(), torch.ones(64, 64)).files
    assert file.cpu is not None
    found = {row.name: (row.allocations, row.allocated_bytes) for row in file.cpu.operators}
    calls = len(file.steps)
    assert found["aten::mm"] == (calls, calls * 64 * 64 * 4)
    assert sum(number for number, _ in found.values()) == 2 * calls  # relu calls clamp_min, which allocates


@pytest.mark.torch
def test_stacks_are_left_out_where_they_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.api import profile as profiling

    def many_calls() -> None:
        for number in range(1000):
            abs(number)

    monkeypatch.setattr(profiling, "_MAX_PYTHON_CALLS", 3000)
    workload = Workload(name="loop", callable=many_calls, args=(), kwargs={})
    profiled = profiling.profile_workload(workload, tmp_path / "trace.json", stacks=True)

    assert profiled.without_stacks.startswith("recorded without stacks: one call of the workload makes 1,00")
    assert "python_function" not in (tmp_path / "trace.json").read_text()
    monkeypatch.undo()
    assert not profiling.profile_workload(workload, tmp_path / "trace.json", stacks=True).without_stacks


@pytest.mark.torch
def test_a_workload_is_profiled_and_reported(tmp_path: Path) -> None:
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
    assert "without the profiler" in ran.err
    (trace,) = ran.json()["files"]
    assert [step["name"] for step in trace["steps"]] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert trace["skipped_events"] == 0
    columns = read_trace(file)
    assert "aten::addmm" in columns.names
    assert columns.unused_events["python_function"] > 0
    assert analyze_trace(file, columns).damage == ()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")  # torch 2.11
def test_a_trace_of_the_cpu_has_the_own_times_that_torch_profiler_reports(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
    inputs = torch.randn(8, 64)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recorder:
        model(inputs).sum().backward()
    recorder.export_chrome_trace(str(tmp_path / "cpu.json"))

    (file,) = rs.trace(tmp_path / "cpu.json").files

    assert file.cpu is not None
    own_us = {row.name: row.own_ns / 1e3 for row in file.cpu.operators}
    expected = {event.key: event for event in recorder.key_averages()}
    assert own_us["aten::addmm"] == pytest.approx(expected["aten::addmm"].self_cpu_time_total, abs=2)
    assert own_us["aten::linear"] == pytest.approx(expected["aten::linear"].self_cpu_time_total, abs=2)
    assert {row.name: row.calls for row in file.cpu.operators}["aten::addmm"] == 1
    assert sum(own_us.values()) <= file.cpu.span_ns / 1e3 * file.cpu.thread_count
    modules = {row.name: row for row in file.modules}
    assert modules["Linear"].own_ns / 1e3 >= own_us["aten::addmm"]
    assert modules["Sequential"].device_ns >= modules["Linear"].device_ns


@pytest.mark.torch
def test_a_workload_that_fails_is_an_error_without_traceback(tmp_path: Path) -> None:
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
    """An environment with the stand-in for rocprofv3 on the PATH."""
    tool = folder / "bin/rocprofv3"
    tool.parent.mkdir()
    tool.write_text(TOOL.format(python=sys.executable))
    tool.chmod(0o755)
    return clean_environ(PATH=f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def test_rocprof_runs_and_its_files_are_read(tmp_path: Path) -> None:
    """With a stand-in that runs the command and writes the files of the real tool."""
    (tmp_path / "w.py").write_text(PLAIN)
    env = with_tool(tmp_path)
    options = ["--trace", str(tmp_path / "trace.json.gz"), "--rocprof", "--counter", "SQ_WAVES", "--output", "json"]
    ran = run_cli("profile", f"{tmp_path}/w.py:build", *options, env=env)

    assert ran.code == 0, ran.err
    (file,) = ran.json()["files"]
    assert file["devices"][0]["kernel_time_ns"] == 200
    assert file["counters"] == [{"kernel": "k", "counter": "SQ_WAVES", "count": 1, "mean": 64.0, "time_ns": None}]
    assert [Path(name).name for name in file["counter_files"]] == ["counters_counter_collection.csv"]


def test_rocprof_counts_each_set_of_counters_in_its_own_run(tmp_path: Path) -> None:
    """The stand-in rejects one set, as GPUs do that cannot count so much at once; then the alternative is used."""
    (tmp_path / "w.py").write_text(PLAIN)
    env = with_tool(tmp_path)
    options = ["--trace", str(tmp_path / "trace.json.gz"), "--rocprof"]
    ran = run_cli("profile", f"{tmp_path}/w.py:build", *options, "--output", "json", env=env)

    assert ran.code == 0, ran.err
    (file,) = ran.json()["files"]
    assert len(file["counter_files"]) == 3
    (use,) = file["hardware"]["kernels"]
    moved = (96 + 32) * 1024
    assert (use["occupancy"], use["l2_hit_rate"], use["bytes"], use["time_ns"]) == (0.5, 0.75, moved, 200.0)
    assert use["gb_per_s"] == pytest.approx(moved / 200)
    assert use["peak_fraction"] == pytest.approx(moved / 200 / 5324.8)
    assert file["hardware"]["unknown"] == []
    assert "cannot count TCC_HIT_sum, TCC_MISS_sum: rocprofv3 exited with 1: Request exceeds" in ran.err

    plain = run_cli("profile", f"{tmp_path}/w.py:build", *options, "--no-counters", "--output", "json", env=env)
    assert (plain.code, plain.json()["files"][0]["hardware"]) == (0, None)


@pytest.mark.torch
def test_missing_rocprofv3_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(WORKLOAD)
    ran = run_cli("profile", f"{tmp_path}/w.py:build", "--rocprof", env=clean_environ(PATH="/nowhere"))

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: rocprofv3 is not installed; it is part of ROCm (package rocprofiler-sdk)\n",
    )
