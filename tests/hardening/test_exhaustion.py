"""Traces made to exhaust time or memory (D13)."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.columns import MAX_DEVICES
from rocsolid.trace.read import read_trace


def kernel(number: int, name: str = "k", device: int = 0) -> dict[str, Any]:
    args = {"device": device, "stream": 7, "correlation": number}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": device,
        "tid": 7,
        "ts": number * 2.0,
        "dur": 1.0,
        "args": args,
    }


def written(tmp_path: Path, events: list[dict[str, Any]]) -> Path:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    return tmp_path / "t.json"


def test_d13_many_devices(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, [kernel(n, device=n) for n in range(20_000)]), single_process=True)
    assert len(set(columns.device.device.tolist())) == MAX_DEVICES
    assert "20,000 device numbers: only events of the first 1024 were read" in columns.damage


def test_d13_many_kernel_names(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, [kernel(n, name=f"k{n}") for n in range(30_000)]), single_process=True)
    assert len(set(columns.device.name.tolist())) == 20_000
    assert columns.names[-1] == "(10,001 others)"
    assert len(columns.device) == 30_000


def test_d13_a_deep_event_does_not_lose_the_others(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel(1), {**kernel(2), "args": "DEEP"}, kernel(3)]})
    (tmp_path / "t.json").write_text(text.replace('"DEEP"', '{"x": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}"))
    trace = analyze_trace("t", read_trace(tmp_path / "t.json", single_process=True))
    assert trace.devices[0].kernel_count == 2
