"""Files for Perfetto and Parquet."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, call, environ_without, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import analyze_traces
from rocsolid.trace.read import read_trace


def read_checked(out: Path) -> list[dict[str, Any]]:
    """Check the rules of Chrome's JSON trace format that Perfetto requires; Perfetto itself is not available here."""

    def fail(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    events: list[dict[str, Any]] = json.loads(gzip.decompress(out.read_bytes()), parse_constant=fail)["traceEvents"]
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
        assert event["ts"] == start / 1000  # exact to the nanosecond
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
def test_a_real_trace_for_perfetto_follows_the_format(tmp_path: Path, name: str) -> None:
    out = tmp_path / "p.json.gz"
    report = analyze_traces([real(name)], perfetto_file=out).report
    events = read_checked(out)
    (device,) = report.files[0].devices
    work = [e for e in events if e["ph"] == "X" and e["pid"] == int(device.device)]

    assert len(work) == device.kernel_count + device.copy_count + device.memset_count
    assert max(round((e["ts"] + e["dur"]) * 1000) for e in work) - min(round(e["ts"] * 1000) for e in work) == (
        pytest.approx(device.span_ns, abs=1)
    )
    assert len([e for e in events if e["name"].startswith("idle: ")]) == len(device.gaps)
    assert {e["name"][:6] for e in events if e["ph"] == "i"} == {f.code for f in report.findings}


def test_overlapping_events_of_a_stream_get_an_extra_lane(tmp_path: Path) -> None:
    overlapping = [kernel("10.000", "10.000", 1), kernel("15.000", "10.000", 2), kernel("30.000", "5.000", 3)]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](overlapping))
    analyze_traces([tmp_path / "t.json"], perfetto_file=tmp_path / "p.json.gz")
    events = read_checked(tmp_path / "p.json.gz")

    lanes = [e["tid"] for e in events if e["ph"] == "X" and e["name"] == "attn_fwd"]
    assert lanes[0] == lanes[2] != lanes[1]
    assert any("(overlapping)" in str(e.get("args")) for e in events)


def test_perfetto_file_contains_events_gaps_and_findings(tmp_path: Path) -> None:
    events = [
        call("5.000", "2.000", 1),
        kernel("10.000", "10.000", 1),
        call("30.000", "2.000", 2),
        kernel("50.000", "10.000", 2),
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    out = tmp_path / "p.json.gz"
    ran = run_cli("trace", str(tmp_path / "t.json"), "--perfetto", str(out))
    written = read_checked(out)
    again = [e for e in written if e["ph"] == "X"]

    assert ran.code == 0, ran.err
    assert {(e["name"], e["ts"], e["dur"]) for e in again} >= {
        ("attn_fwd", 10.0, 10.0),
        ("idle: late-launch", 20.0, 30.0),
    }
    assert any(e["name"].startswith("TRC001") for e in written if e["ph"] == "i")


def test_parquet_files_contain_the_events(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"]([kernel("10.000", "10.000", 1)]))
    analyze_traces([tmp_path / "t.json"], parquet_folder=tmp_path / "out")
    rows = parquet.read_table(tmp_path / "out/device.parquet").to_pylist()

    assert [(r["name"], r["start"], r["end"]) for r in rows] == [("attn_fwd", 10_000, 20_000)]


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"]([kernel("10.000", "10.000", 1)]))
    env = environ_without(tmp_path, "pyarrow")
    ran = run_cli("trace", str(tmp_path / "t.json"), "--parquet", str(tmp_path / "out"), env=env)

    assert (ran.code, ran.err) == (
        3,
        "rocsolid: error: writing Parquet needs an optional package: pip install 'rocsolid[parquet]'\n",
    )


def test_events_of_devices_are_never_left_out_of_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.trace.export import timeline as module

    columns = read_trace(real("h200_policy_inference_25ms_39hz.json"))
    whole = module.build_timeline(columns)
    monkeypatch.setattr(module, "MAX_HOST_EVENTS", 10)
    thin = module.build_timeline(columns)

    for built in (whole, thin):
        assert sum(lane.count for lane in built.lanes if lane.kind != "host") == len(columns.device)
    assert whole.dropped_events == 0
    assert sum(lane.count for lane in thin.lanes if lane.kind == "host") <= 10
    assert thin.dropped_events > 300
    assert any("inputs " in text and "grid " in text for text in whole.details)
