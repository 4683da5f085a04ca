"""A trace recorded during a graph capture gets no advice to capture."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, Event, call, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.model.finding import Finding, Severity
from rocsolid.model.trace import GraphCaptures, TraceFile
from rocsolid.rules.trace_rules import check_traces
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.read import read_trace

# Two kernels with 880 us between them, and thirty launches without work in between.
BEFORE: list[Event] = [call("5.000", "2.000", 1), kernel("10.000", "10.000", 1)]
WITHOUT_WORK = [call(f"{100 + 20 * n}.000", "2.000", 100 + n) for n in range(30)]
AFTER: list[Event] = [call("898.000", "2.000", 2), kernel("900.000", "10.000", 2)]


def read(folder: Path, *events: Event) -> TraceFile:
    (folder / "t.json").write_text(LAYOUTS["kineto"]([*BEFORE, *events, *AFTER]))
    return analyze_trace("t.json", read_trace(folder / "t.json"))


def launch_bound(trace: TraceFile) -> Finding:
    (finding,) = [f for f in check_traces([trace]) if f.code == "TRC001"]
    return finding


def begin(ts: str, vendor: str = "hip") -> Event:
    return call(ts, "1.000", 90, f"{vendor}StreamBeginCapture")


def end(ts: str, vendor: str = "hip") -> Event:
    return call(ts, "1.000", 91, f"{vendor}StreamEndCapture")


@pytest.mark.parametrize("vendor", ["hip", "cuda"])
def test_a_capture_inside_the_trace(tmp_path: Path, vendor: str) -> None:
    launches = [{**e, "name": f"{vendor}LaunchKernel"} for e in WITHOUT_WORK]
    trace = read(tmp_path, begin("30.000", vendor), *launches, end("880.000", vendor))
    found = launch_bound(trace)

    assert trace.captures == GraphCaptures(
        count=1, time_ns=851_000, recorded_launches=30, launches_without_work=30, launches=32
    )
    assert found.severity is Severity.INFO
    assert "A graph is being captured: 30 launches were recorded instead of run" in found.why
    assert found.fix == "Profile calls that replay the graph: only these show how much time can still be saved."
    assert "Capture the call" not in found.fix


@pytest.mark.parametrize(
    ("edge", "time_ns"), [(begin("30.000"), 870_000), (end("880.000"), 876_000)], ids=["end", "begin"]
)
def test_a_capture_that_begins_or_ends_outside_the_trace(tmp_path: Path, edge: Event, time_ns: int) -> None:
    trace = read(tmp_path, edge, *WITHOUT_WORK)

    assert (trace.captures.count, trace.captures.time_ns, trace.captures.recorded_launches) == (1, time_ns, 30)
    assert "A graph is being captured" in launch_bound(trace).why


def test_a_capture_that_begins_and_ends_outside_the_trace(tmp_path: Path) -> None:
    found = launch_bound(read(tmp_path, *WITHOUT_WORK))

    assert found.severity is Severity.INFO
    assert "A graph is probably being captured" in found.why
    assert "30 of 32 launches started no work on any device" in found.why


def test_a_short_capture_does_not_hide_late_launches(tmp_path: Path) -> None:
    trace = read(tmp_path, begin("30.000"), *WITHOUT_WORK[:2], end("130.000"))
    found = launch_bound(trace)

    assert found.severity is Severity.WARNING
    assert found.fix.startswith("Capture the call in a graph: fast = rs.capture(model). Recoverable: ")
    assert found.facts["recoverable_ms"][1] == pytest.approx(0.78, abs=0.005)  # type: ignore[index]
    assert found.why.endswith("Another 0.10 ms passed while a graph was captured.")


def test_without_a_capture_the_fix_is_to_capture(tmp_path: Path) -> None:
    found = launch_bound(read(tmp_path))

    assert found.fix.startswith("Capture the call in a graph: fast = rs.capture(model). Recoverable: ")
    assert " to 0.88 ms" in found.fix
    assert "capture" not in found.why
    few = launch_bound(replace(read(tmp_path), captures=GraphCaptures(launches_without_work=19, launches=20)))
    assert few.severity is Severity.WARNING


def test_overlapping_captures_of_several_streams_count_once_in_time(tmp_path: Path) -> None:
    trace = read(tmp_path, begin("30.000"), begin("40.000"), end("100.000"), end("200.000"), *WITHOUT_WORK[:1])

    assert (trace.captures.count, trace.captures.time_ns, trace.captures.recorded_launches) == (2, 171_000, 1)


def test_a_real_capture_and_its_replay() -> None:
    file = real("mi300x_vllm_decode_full_capture.json.gz")
    trace = analyze_trace(file, read_trace(file))
    replay = real("mi300x_vllm_decode_full_hipgraph.json.gz")

    assert (trace.captures.count, trace.captures.recorded_launches, trace.captures.launches) == (1, 421, 428)
    assert trace.captures.time_ns == 54_988_169
    assert "421 launches were recorded" in launch_bound(trace).why
    shown = run_cli("trace", str(file))
    assert (
        "a graph was captured during this trace (54.99 ms of host time); 421 of 428 kernel launches were recorded"
        in " ".join(shown.out.split())
    )
    assert "A graph is being captured" in " ".join(shown.out.split())  # notes are shown without --verbose
    assert "Capture the call" not in shown.out
    assert "captured during this trace" in run_cli("trace", str(file), "--output", "html").out
    assert analyze_trace(replay, read_trace(replay)).captures.count == 0
