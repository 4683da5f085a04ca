"""A trace taken while a graph was captured is not told to capture."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, Event, call, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.model.finding import Finding, Severity
from rocsolid.model.trace import Captures, TraceFile
from rocsolid.rules.trace_rules import check_traces
from rocsolid.trace.analysis import answer
from rocsolid.trace.read import read_trace

# Two kernels with 880 us between them, in which thirty launches bring no work.
BEFORE: list[Event] = [call("5.000", "2.000", 1), kernel("10.000", "10.000", 1)]
SILENT = [call(f"{100 + 20 * n}.000", "2.000", 100 + n) for n in range(30)]
AFTER: list[Event] = [call("898.000", "2.000", 2), kernel("900.000", "10.000", 2)]


def read(folder: Path, *events: Event) -> TraceFile:
    (folder / "t.json").write_text(LAYOUTS["kineto"]([*BEFORE, *events, *AFTER]))
    return answer("t.json", read_trace(folder / "t.json"))


def advice(trace: TraceFile) -> Finding:
    (finding,) = [f for f in check_traces([trace]) if f.code == "TRC001"]
    return finding


def begin(ts: str, vendor: str = "hip") -> Event:
    return call(ts, "1.000", 90, f"{vendor}StreamBeginCapture")


def end(ts: str, vendor: str = "hip") -> Event:
    return call(ts, "1.000", 91, f"{vendor}StreamEndCapture")


@pytest.mark.parametrize("vendor", ["hip", "cuda"])
def test_a_capture_that_begins_and_ends_in_the_trace(tmp_path: Path, vendor: str) -> None:
    launches = [{**e, "name": f"{vendor}LaunchKernel"} for e in SILENT]
    trace = read(tmp_path, begin("30.000", vendor), *launches, end("880.000", vendor))
    found = advice(trace)

    assert trace.captures == Captures(count=1, time_ns=851_000, recorded_launches=30, silent_launches=30, launches=32)
    assert found.severity is Severity.INFO
    assert "A graph is being captured: 30 launches were recorded instead of run" in found.why
    assert found.fix == "Profile calls that replay the graph. They show what can still be gained."
    assert "Capture the call" not in found.fix


@pytest.mark.parametrize(
    ("edge", "time_ns"), [(begin("30.000"), 870_000), (end("880.000"), 876_000)], ids=["end", "begin"]
)
def test_a_capture_that_reaches_beyond_the_trace(tmp_path: Path, edge: Event, time_ns: int) -> None:
    trace = read(tmp_path, edge, *SILENT)

    assert (trace.captures.count, trace.captures.time_ns, trace.captures.recorded_launches) == (1, time_ns, 30)
    assert "A graph is being captured" in advice(trace).why


def test_a_capture_of_which_the_trace_shows_neither_end(tmp_path: Path) -> None:
    found = advice(read(tmp_path, *SILENT))

    assert found.severity is Severity.INFO
    assert "A graph is probably being captured" in found.why
    assert "30 of 32 launches started no work on any device" in found.why


def test_a_short_capture_does_not_hide_a_late_host(tmp_path: Path) -> None:
    trace = read(tmp_path, begin("30.000"), *SILENT[:2], end("130.000"))
    found = advice(trace)

    assert found.severity is Severity.WARNING
    assert found.fix.startswith("Capture the call in a graph: fast = rs.capture(model). Expected gain: up to 0.78 ms")
    assert found.why.endswith("Another 0.10 ms passed while a graph was captured.")


def test_without_a_capture_the_advice_is_as_before(tmp_path: Path) -> None:
    found = advice(read(tmp_path))

    assert (
        found.fix
        == "Capture the call in a graph: fast = rs.capture(model). Expected gain: up to 0.88 ms, 98% of the traced time."
    )
    assert "capture" not in found.why
    few = advice(replace(read(tmp_path), captures=Captures(silent_launches=19, launches=20)))
    assert few.severity is Severity.WARNING


def test_captures_of_several_streams_at_once_are_no_longer_than_their_union(tmp_path: Path) -> None:
    trace = read(tmp_path, begin("30.000"), begin("40.000"), end("100.000"), end("200.000"), *SILENT[:1])

    assert (trace.captures.count, trace.captures.time_ns, trace.captures.recorded_launches) == (2, 171_000, 1)


def test_a_real_capture_is_told_apart_from_its_replay() -> None:
    file = real("mi300x_vllm_decode_full_capture.json.gz")
    trace = answer(file, read_trace(file))
    replay = real("mi300x_vllm_decode_full_hipgraph.json.gz")

    assert (trace.captures.count, trace.captures.recorded_launches, trace.captures.launches) == (1, 421, 428)
    assert trace.captures.time_ns == 54_988_169
    assert "421 launches were recorded" in advice(trace).why
    shown = run_cli("trace", str(file))
    assert "a graph was captured in 54.99 ms on the host; 421 of 428 launches were recorded" in shown.out
    assert "A graph is being captured" in " ".join(shown.out.split())  # notes are shown without being asked for
    assert "Capture the call" not in shown.out
    assert "captured in" in run_cli("trace", str(file), "--output", "html").out
    assert answer(replay, read_trace(replay)).captures.count == 0
