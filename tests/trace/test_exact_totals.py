"""Totals are exact: compared with stored values for real traces, and with an independent count for generated ones."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.trace import data
from tests.trace.data import LAYOUTS, TRUTH, call, copy, count, host, kernel, packed, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.model.trace import TraceFile
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.read import read_trace

pytestmark = pytest.mark.usefixtures("reader")

# Three formats of timestamps: since a base, integer microseconds since 1970, and microseconds with decimals.
BASES = {"decimals": "3743411222{:03d}.{:03d}", "whole": "1683564902{:06d}", "epoch": "1712195495505{:03d}.{:03d}"}


def module(name: str) -> ModuleType:
    """Import by name, because the attribute `rocsolid.trace` is the function."""
    return importlib.import_module(f"rocsolid.trace.{name}")


def totals(trace: TraceFile) -> dict[str, dict[str, int]]:
    names = next(iter(next(iter(TRUTH.values()))["devices"].values()))
    return {d.device: {name: getattr(d, name) for name in names} for d in trace.devices}


@pytest.mark.parametrize("name", TRUTH)
def test_real_traces_have_exact_totals(name: str) -> None:
    file = real(name)
    trace = analyze_trace(file, read_trace(file))

    assert totals(trace) == TRUTH[name]["devices"]
    assert trace.events == TRUTH[name]["events"]
    assert (trace.skipped_events, trace.damage) == (0, ())


def some_events(base: str) -> list[data.Event]:
    """Two streams, graph replays, copies with a size as number or text, flow events, Python functions, names."""

    def at(ns: int) -> str:
        return base.format(ns) if base.count("{") == 1 else base.format(ns // 1000, ns % 1000)

    events: list[data.Event] = [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "python"}},
        host("user_annotation", "ProfilerStep#1", at(1000), "800"),
    ]
    for n in range(40):
        events += [
            host("python_function", f"model.py({n}): forward", at(1000 + n * 20), "19"),
            host("cpu_op", "aten::mm", at(1001 + n * 20), "18", external=n),
            call(at(1002 + n * 20), "3", n, "hipGraphLaunch" if n % 10 == 3 else "hipLaunchKernel"),
            {"ph": "s", "id": n, "pid": 1, "tid": 1, "ts": at(1002 + n * 20), "cat": "ac2g", "name": "ac2g"},
            kernel(at(1009 + n * 20), "7.125" if "." in base else "7", n, args={"stream": n % 2}),
            kernel(at(1013 + n * 20), "9", n),
        ]
        if n % 4 == 0:
            events.append(copy(at(1030 + n * 20), "2", n, 512 if n % 8 else "256"))
    events.append({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": at(1900)})
    return events


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_timestamp_format(tmp_path: Path, layout: str, base: str) -> None:
    text = LAYOUTS[layout](some_events(base))
    for name, content in (("t.json", text.encode()), ("t.json.gz", packed(text))):
        (tmp_path / name).write_bytes(content)
        trace = analyze_trace(name, read_trace(tmp_path / name))

        assert totals(trace) == count(text)
        assert trace.events == len(some_events(base))
        assert (trace.skipped_events, trace.damage) == (0, ())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_may_end_anywhere_in_an_event(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 997 bytes end inside names, numbers and boundaries."""
    monkeypatch.setattr(module("readers.bytestream"), "CHUNK_BYTES", 997)
    monkeypatch.setattr(module("readers.kineto"), "_DETECTION_BYTES", 3000)
    text = LAYOUTS[layout](some_events(BASES["epoch"]) * 3)
    (tmp_path / "t.json").write_text(text)

    assert totals(analyze_trace("t", read_trace(tmp_path / "t.json"))) == count(text)


def test_two_processes_read_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for least in ("_MIN_BYTES", "_MIN_BYTES_WITH_SCANNER"):
        monkeypatch.setattr(module("readers.parallel"), least, 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    text = LAYOUTS["kineto"](some_events(BASES["epoch"]) * 40)
    (tmp_path / "t.json").write_text(text)
    halved = read_trace(tmp_path / "t.json")
    trace = analyze_trace("t", halved)

    assert totals(trace) == count(text)
    assert trace.devices[0].model == "A chip"
    assert (trace.skipped_events, trace.damage) == (0, ())
    assert halved.unused_events == {"python_function": 1600, "phase M": 40, "phase s": 1600, "phase i": 40}


def test_timestamps_that_a_double_cannot_hold_are_exact(tmp_path: Path) -> None:
    events = [kernel("1712195495505582.988", "0.001", 1), kernel("1712195495505582.990", "0.5", 2)]
    (tmp_path / "t.json").write_text(LAYOUTS["compact"](events))
    (device,) = analyze_trace("t", read_trace(tmp_path / "t.json")).devices

    assert (device.span_ns, device.busy_ns, device.idle_ns) == (502, 501, 1)


def test_unusual_ids_and_names_are_read(tmp_path: Path) -> None:
    """Device 9 when only 0 is listed, stream 0, numbers as text, no args."""
    odd: list[dict[str, Any]] = [
        kernel("1.000", "1.000", 1, args={"device": 9, "stream": 0}),
        kernel("3.000", "1.000", 2, args={"device": "9", "stream": "0", "correlation": "2"}),
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 9, "tid": 0, "ts": "5.000", "dur": "1.000"},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler", "pid": "Spans", "tid": "x", "ts": "1.0", "dur": "9"},
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](odd))
    trace = analyze_trace("t", read_trace(tmp_path / "t.json"))

    assert [(d.device, d.kernel_count, d.stream_count, d.model) for d in trace.devices] == [("9", 3, 1, "A chip")]
    assert trace.skipped_events == 0


def test_annotations_on_the_device_are_not_work(tmp_path: Path) -> None:
    """Newer profilers start them one nanosecond early."""
    events = [kernel("2.000", "1.000", 1), {**kernel("1.999", "9.000", 1), "cat": "gpu_user_annotation"}]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    (device,) = analyze_trace("t", read_trace(tmp_path / "t.json")).devices

    assert (device.span_ns, device.kernel_count) == (1000, 1)
