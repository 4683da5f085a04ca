"""The flame graph, and the Python lines that launched kernels."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, Event, call, host, kernel, packed, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import analyze_traces
from rocsolid.model.trace_view import FlameGraph
from rocsolid.trace.export import flame as flames
from rocsolid.trace.export.timeline import build_timeline
from rocsolid.trace.readers.json_events import detect_separator, find_first_event, first_event_boundary
from rocsolid.trace.readers.kineto import FilePart, read_kineto
from rocsolid.trace.readers.parallel import join_columns


def frame(name: str, ts: str, dur: str, tid: int = 1) -> Event:
    return {**host("python_function", name, ts, dur), "tid": tid}


STEPS: list[Event] = [
    frame("train.py(10): step", "10.000", "90.000"),
    frame("nn.Module: Linear_0", "20.000", "30.000"),
    frame("<built-in method linear of type object at 0x7f00>", "25.000", "10.000"),
    call("30.000", "1.000", 1),
    frame("nn.Module: Linear_1", "60.000", "20.000"),
    frame("<built-in method linear of type object at 0x7f11>", "65.000", "10.000"),
    call("70.000", "1.000", 2),
    call("95.000", "1.000", 3),
    frame("loader.py(5): work", "15.000", "40.000", tid=2),
    {**call("40.000", "1.000", 4), "tid": 3},
    kernel("100.000", "5.000", 1),
    kernel("110.000", "7.000", 2),
    kernel("120.000", "11.000", 3),
    kernel("140.000", "2.000", 4),
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": "0", "args": {"name": "thread 1 (python)"}},
]


def flame_of(file: Path) -> FlameGraph:
    found = analyze_traces([file], timeline=True).timelines[str(file)].flame
    assert found
    return found


def stacks(flame: FlameGraph) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """For each stack of names: host time, device time, calls."""
    paths: list[tuple[str, ...]] = []
    for name, parent in zip(flame.name_index, flame.parent, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), flame.names[name]))
    return dict(zip(paths, zip(flame.host_ns, flame.device_ns, flame.count, strict=True), strict=True))


MAIN = ("thread 1 (python)", "train.py(10): step")
LINEAR = (*MAIN, "nn.Module: Linear")
BUILT_IN = (*LINEAR, "<built-in method linear of type object>")
EXPECTED = {
    MAIN[:1]: (90_000, 23_000, 1),
    MAIN: (90_000, 23_000, 1),
    LINEAR: (50_000, 12_000, 2),
    BUILT_IN: (20_000, 12_000, 2),
    ("thread 1/2",): (40_000, 0, 1),
    ("thread 1/2", "loader.py(5): work"): (40_000, 0, 1),
    ("thread 1/3: no Python frames",): (0, 2_000, 1),
}


@pytest.mark.parametrize("separator", LAYOUTS)
def test_stacks_have_host_time_and_launched_device_time(tmp_path: Path, separator: str) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS[separator](STEPS))
    flame = flame_of(tmp_path / "t.json")

    assert stacks(flame) == EXPECTED
    rows = {row.name: (row.count, row.total_ns, row.self_ns, row.device_ns) for row in flame.rows}
    assert rows["train.py(10): step"] == (1, 90_000, 40_000, 23_000)
    assert rows["nn.Module: Linear"] == (2, 50_000, 30_000, 12_000)


def test_event_order_and_compression_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "t.json.gz").write_bytes(packed(LAYOUTS["kineto"](STEPS[::-1])))

    assert stacks(flame_of(tmp_path / "t.json.gz")) == EXPECTED


def test_recursive_calls_count_once_in_total_time(tmp_path: Path) -> None:
    events = [frame("f.py(1): f", "10.000", "50.000"), frame("f.py(1): f", "20.000", "30.000")]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    (row,) = flame_of(tmp_path / "t.json").rows

    assert (row.count, row.total_ns, row.self_ns) == (2, 50_000, 50_000)


@pytest.mark.parametrize("damage", [('"dur": 10.000', '"dur": nan'), ("loader.py", "load\ter.py")], ids=["nan", "tab"])
def test_one_broken_event_is_skipped(tmp_path: Path, damage: tuple[str, str]) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](STEPS).replace(*damage, 1))
    found = stacks(flame_of(tmp_path / "t.json"))

    assert found[LINEAR] == EXPECTED[LINEAR]
    assert len(found) >= len(EXPECTED) - 2
    assert found != EXPECTED


def test_the_longest_calls_are_kept_and_the_others_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flames, "MAX_FRAMES", 4)
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](STEPS))
    flame = flame_of(tmp_path / "t.json")
    assert flame.dropped_calls == 2
    assert stacks(flame)[LINEAR] == EXPECTED[LINEAR]
    monkeypatch.setattr(flames, "MAX_NODES", 3)
    assert flame_of(tmp_path / "t.json").dropped_nodes > 0


def test_a_trace_without_python_functions_has_no_flame_graph(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"]([e for e in STEPS if e.get("cat") != "python_function"]))
    assert analyze_traces([tmp_path / "t.json"], timeline=True).timelines[str(tmp_path / "t.json")].flame is None
    assert "Flame graph of Python stacks" not in run_cli("trace", str(tmp_path / "t.json"), "--output", "html").out


def test_the_page_shows_python_lines_without_stacks_option(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](STEPS))
    page = run_cli("trace", str(tmp_path / "t.json"), "--output", "html").out

    assert "Flame graph of Python stacks" in page
    assert " at train.py(10): step" in page


def test_the_line_is_in_the_launching_thread(tmp_path: Path) -> None:
    """Another thread runs a shorter function at that time. For a thread without frames, the waiting thread's is used."""
    events: list[Event] = [
        frame("train.py(10): step", "10.000", "90.000"),
        frame("loader.py(5): work", "15.000", "40.000", tid=2),
        call("30.000", "1.000", 1),
        {**call("70.000", "1.000", 2), "tid": 3},
        kernel("100.000", "5.000", 1, name="forward"),
        kernel("110.000", "7.000", 2, name="backward"),
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    (device,) = analyze_traces([tmp_path / "t.json"], stacks=True).report.files[0].devices

    assert {row.name: row.location for row in device.kernels} == {
        "forward": "train.py(10): step",
        "backward": "train.py(10): step",
    }


def test_both_halves_of_a_file_use_the_same_thread_names(tmp_path: Path) -> None:
    names: list[Event] = [STEPS[-1]]
    events = [*names, *(call(f"{10 * n}.000", "1.000", n) for n in range(1, 9))]
    text = LAYOUTS["kineto"](events).encode()
    (tmp_path / "t.json").write_bytes(text)
    start = find_first_event(text) or 0
    separator = detect_separator(text[start:])
    middle = len(text) // 2 + (first_event_boundary(text[len(text) // 2 :], separator) or 0)
    halves = [
        FilePart(first=start, last=middle - len(separator.comma), separator=separator, has_list_end=False),
        FilePart(first=middle, last=None, separator=separator, has_list_end=True),
    ]
    columns = join_columns([read_kineto(tmp_path / "t.json", half) for half in halves])

    assert columns.threads == ("1/1",)
    assert [lane.label for lane in build_timeline(columns).lanes] == ["thread 1 (python)"]


def test_a_real_flame_graph_agrees_with_kineto_parent_ids() -> None:
    """Kineto writes an id for each Python call and its caller; the tree built from times must be the same."""
    import gzip

    file = real("mi300x_qwen1.5-0.5b.json.gz")
    data: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    calls = [e for e in data["traceEvents"] if e.get("cat") == "python_function"]
    by_id = {e["args"]["Python id"]: e for e in calls}
    pairs: dict[tuple[str, str], int] = {}
    for event in calls:
        caller = by_id.get(event["args"]["Python parent id"])
        if caller:
            key = (flames._common_name(caller["name"]), flames._common_name(event["name"]))
            pairs[key] = pairs.get(key, 0) + 1
    flame = flame_of(file)
    found: dict[tuple[str, str], int] = {}
    for node, parent in enumerate(flame.parent):
        if parent >= 0 and flame.parent[parent] >= 0:
            key = (flame.names[flame.name_index[parent]], flame.names[flame.name_index[node]])
            found[key] = found.get(key, 0) + flame.count[node]

    assert flame.dropped_calls == 0
    assert sum(found.values()) == sum(pairs.values()) == 4_264
    # For two calls, the caller in the file contradicts the times in the file: it was in another call.
    assert sum(min(times, pairs.get(pair, 0)) for pair, times in found.items()) == 4_262


def test_stacks_find_the_line_that_launched_a_kernel(tmp_path: Path) -> None:
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
    (device,) = analyze_traces([tmp_path / "t.json"], stacks=True).report.files[0].devices

    assert {row.name: row.location for row in device.kernels} == {
        "one": "model.py(42): forward",
        "two": "train.py(10): step",
    }


def test_stacks_find_most_lines_of_a_real_trace() -> None:
    file = real("mi300x_bert-small.json.gz")
    (device,) = analyze_traces([file], stacks=True).report.files[0].devices

    assert sum(bool(row.location) for row in device.kernels) > 0.9 * len(device.kernels)
    assert any("bert/modeling_bert.py" in row.location for row in device.kernels)
