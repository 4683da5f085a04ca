"""Compiled regions of a trace with a TORCH_TRACE log: functions, lines, graph breaks, recompiles, and wrong logs."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, run_cli, run_python
from tests.trace.data import LAYOUTS, host

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import analyze_traces
from rocsolid.model.code_line import CodeLine
from rocsolid.model.compile_log import CompiledGraph, CompileLog, GraphBreak, GraphKind, Recompile
from rocsolid.model.trace import TraceFile
from rocsolid.trace.analysis.compiled_regions import add_compile_log, compile_id, graphs_in_trace

SCRIPT = """\
import sys
import torch

def forward(x):
    y = x * 2
    print("values")
    return y.relu()

def unused(x):
    torch._dynamo.graph_break()
    return x + 1

compiled = torch.compile(forward, backend="eager", dynamic=False)
torch.compile(unused, backend="eager")(torch.ones(3))
compiled(torch.ones(3))
compiled(torch.ones(4))
with torch.profiler.profile() as profiler:
    compiled(torch.ones(4))
profiler.export_chrome_trace(sys.argv[1])
"""


def write_trace(folder: Path, *names: str) -> TraceFile:
    events = [host("cpu_op", name, f"{10 * n}.000", "5.000", n) for n, name in enumerate(names, 1)]
    (folder / "t.json").write_text(LAYOUTS["kineto"](events))
    return analyze_traces([folder / "t.json"]).report.files[0]


def graph(compile_id: str, function: str, place: str, **more: Any) -> CompiledGraph:
    return CompiledGraph(
        number=1, compile_id=compile_id, kind=GraphKind.INFERENCE, function=function, location=place, **more
    )


def graph_break(place: str, function: str, stack: tuple[str, ...] = ()) -> GraphBreak:
    file, _, line = place.partition(":")
    code = CodeLine(file=file, line=int(line))
    return GraphBreak(id="GB0059", kind="k", code=code, function=function, cause="print", fix="do not", stack=stack)


def compile_log(graphs: tuple[CompiledGraph, ...], *breaks: GraphBreak) -> CompileLog:
    return CompileLog(started_at="", seconds=1.0, torch="2.13", graphs=graphs, breaks=breaks)


def test_compile_ids_in_region_names() -> None:
    names = ("Torch-Compiled Region: 3/1", "Torch-Compiled Region: !0/4/2", "Torch-Compiled Region: 0/0_1", "aten::mm")
    assert [compile_id(name) for name in names] == ["3/1", "4/2", "0/0", ""]


def test_regions_get_function_line_and_reason(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path, "Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0", "Torch-Compiled Region: 2/1"
    )
    again = Recompile(previous_compile_id="2/0", guard="g", cause="the size changed", fix="mark it dynamic")
    log = compile_log(
        (
            graph("0/0", "f", "a.py:1"),
            graph("1/0", "f (resumed at line 3)", "a.py:3"),
            graph("2/0", "g", "b.py:7"),
            graph("2/1", "g", "b.py:7", recompile=again),
        ),
        graph_break("a.py:3", "f"),
        graph_break("deep.py:9", "helper", ("b.py:7", "deep.py:9")),
        graph_break("other.py:5", "never"),
    )
    joined = add_compile_log(trace, log, "logs")
    found = {region.name[-3:]: (region.function, region.location, region.reason) for region in joined.regions}

    assert found == {
        "0/0": ("f", "a.py:1", ""),
        "1/0": ("f (resumed at line 3)", "a.py:3", "graph break at a.py:3: print"),
        "2/1": ("g", "b.py:7", "recompiled: the size changed"),
    }
    assert joined.compile_log
    assert (
        joined.compile_log.matched_regions,
        joined.compile_log.unmatched_regions,
        joined.compile_log.other_breaks,
    ) == (3, (), 1)
    assert [one.location for one in joined.compile_log.breaks] == ["a.py:3", "deep.py:9"]
    assert [shown.compile_id for shown in graphs_in_trace(joined, log)] == ["0/0", "1/0", "2/1"]


def test_all_functions_with_the_same_compile_id_are_listed(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, "Torch-Compiled Region: 0/0")
    backward = CompiledGraph(number=2, compile_id="0/0", kind=GraphKind.BACKWARD, function="x", location="x.py:1")
    log = compile_log((graph("0/0", "f", "a.py:1"), graph("0/0", "g", "b.py:2"), graph("0/0", "f", "a.py:1"), backward))
    (region,) = add_compile_log(trace, log, "logs").regions

    assert (region.function, region.location) == ("f or g", "a.py:1 or b.py:2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that was profiled with TORCH_TRACE set."""
    made = tmp_path_factory.mktemp("run")
    (made / "script.py").write_text(SCRIPT)
    env = clean_environ(TORCH_TRACE=str(made / "logs"))
    ran = run_python(str(made / "script.py"), str(made / "t.json"), env=env)
    assert ran.code == 0, ran.err
    return made


@pytest.mark.torch
def test_a_real_trace_with_its_log(run: Path) -> None:
    ran = run_cli("trace", str(run / "t.json"), "--torch-trace", str(run / "logs"), "--output", "json")
    (file,) = ran.json()["files"]
    found = [(r["function"], r["location"]) for r in file["regions"] if r["name"].startswith("Torch-Compiled Region")]
    script = run / "script.py"

    assert sorted(found) == [("forward", f"{script}:4"), ("forward (resumed at line 6)", f"{script}:6")]
    assert {(found["code"]["file"], found["code"]["line"]) for found in file["compile_log"]["breaks"]} == {
        (str(script), 6)
    }
    assert file["compile_log"]["other_breaks"] == 1
    codes = [(f["code"], f["location"]) for f in ran.json()["findings"]]
    assert ("BRK001", f"{script}:6") in codes
    assert [code for code, _ in codes].count("BRK002") == 2  # both halves were recompiled for the longer input


@pytest.mark.torch
def test_lines_are_in_text_page_and_saved_report(run: Path, tmp_path: Path) -> None:
    given = ["trace", str(run / "t.json"), "--torch-trace", str(run / "logs")]
    flat = " ".join(run_cli(*given).out.split())
    assert f"forward at {run}/script.py:4" in flat
    assert "1 more graph break in functions that do not run in this trace" in flat
    assert f"{run}/script.py:6" in run_cli(*given, "--output", "html").out
    run_cli(*given, "--output", "json", "--out", str(tmp_path / "saved.json"))
    assert f"{run}/script.py:6" in run_cli("report", str(tmp_path / "saved.json")).out


@pytest.mark.torch
def test_a_log_of_another_run_is_reported(run: Path, tmp_path: Path) -> None:
    write_trace(tmp_path, "Torch-Compiled Region: 7/0")
    ran = run_cli("trace", str(tmp_path / "t.json"), "--torch-trace", str(run / "logs"))
    assert "the log is from another run: it contains none of the compiled regions" in " ".join(ran.out.split())
    assert "BRK001" not in ran.out


def test_a_folder_without_a_log_is_an_error(tmp_path: Path) -> None:
    write_trace(tmp_path, "Torch-Compiled Region: 7/0")
    ran = run_cli("trace", str(tmp_path / "t.json"), "--torch-trace", str(tmp_path / "nowhere"))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "does not exist; pass the folder that TORCH_TRACE was set to" in ran.err
    assert run_cli("trace", str(tmp_path), "--ranks", "--torch-trace", str(tmp_path)).code == 2


@pytest.mark.torch
def test_each_rank_uses_its_own_log(run: Path, tmp_path: Path) -> None:
    """Torch writes the rank into the file name; rank 1 compiled another function here."""
    (tmp_path / "logs").mkdir()
    (log,) = (run / "logs").glob("*.log")
    text = log.read_text()
    for rank, words in enumerate((text, text.replace('"name": "forward"', '"name": "backward_of_rank_1"'))):
        (tmp_path / "logs" / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(words)
        trace = (run / "t.json").read_text()
        made = trace.replace('"schemaVersion": 1', f'"schemaVersion": 1, "distributedInfo": {{"rank": {rank}}}', 1)
        (tmp_path / f"rank{rank}.json").write_text(made)
    ran = run_cli("trace", str(tmp_path), "--ranks", "--torch-trace", str(tmp_path / "logs"), "--output", "json")
    functions = [{region["function"] for region in file["regions"]} - {""} for file in ran.json()["files"]]

    assert any(name.startswith("forward") for name in functions[0])
    assert not any(name.startswith("backward_of_rank_1") for name in functions[0])
    assert any(name.startswith("backward_of_rank_1") for name in functions[1])
    places = [(f["code"], f["location"]) for f in ran.json()["findings"] if f["code"] == "BRK001"]
    assert len(places) == len(set(places)) == 1


def test_the_log_is_read_without_torch(tmp_path: Path) -> None:
    """Logs can be read on a machine without torch."""
    (tmp_path / "logs").mkdir()
    code = f"""
import sys
sys.modules["torch"] = None
from rocsolid.observe.torch_trace_files import read_trace
from pathlib import Path
try:
    read_trace(Path({str(tmp_path / "logs")!r}))
except Exception as error:
    print(type(error).__name__)
"""
    assert run_python("-c", code, python=sys.executable).out == "InputError\n"
