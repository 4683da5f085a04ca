"""Host stacks by Python frame, and the lines behind kernels, from a second pass over a trace."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, Event, call, host, kernel, packed, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import read_traces
from rocsolid.model.trace_view import Flame
from rocsolid.trace import flame as flames
from rocsolid.trace.column_files import join
from rocsolid.trace.json_layout import find_events, first_border, sniff
from rocsolid.trace.kineto import Share, read_kineto
from rocsolid.trace.timeline import timeline


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


def flame_of(file: Path) -> Flame:
    found = read_traces([file], picture=True).timelines[str(file)].flame
    assert found
    return found


def stacks(flame: Flame) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """Each stack by its names: time on the host, device time, calls."""
    paths: list[tuple[str, ...]] = []
    for name, parent in zip(flame.name, flame.parent, strict=True):
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stacks_carry_their_time_and_the_work_they_launched(tmp_path: Path, layout: str) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS[layout](STEPS))
    flame = flame_of(tmp_path / "t.json")

    assert stacks(flame) == EXPECTED
    rows = {row.name: (row.count, row.total_ns, row.self_ns, row.device_ns) for row in flame.rows}
    assert rows["train.py(10): step"] == (1, 90_000, 40_000, 23_000)
    assert rows["nn.Module: Linear"] == (2, 50_000, 30_000, 12_000)


def test_the_order_of_the_file_and_its_packing_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "t.json.gz").write_bytes(packed(LAYOUTS["kineto"](STEPS[::-1])))

    assert stacks(flame_of(tmp_path / "t.json.gz")) == EXPECTED


def test_a_function_that_calls_itself_is_counted_once(tmp_path: Path) -> None:
    events = [frame("f.py(1): f", "10.000", "50.000"), frame("f.py(1): f", "20.000", "30.000")]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    (row,) = flame_of(tmp_path / "t.json").rows

    assert (row.count, row.total_ns, row.self_ns) == (2, 50_000, 50_000)


@pytest.mark.parametrize("spoil", [('"dur": 10.000', '"dur": nan'), ("loader.py", "load\ter.py")], ids=["nan", "tab"])
def test_one_broken_event_costs_only_itself(tmp_path: Path, spoil: tuple[str, str]) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](STEPS).replace(*spoil, 1))
    found = stacks(flame_of(tmp_path / "t.json"))

    assert found[LINEAR] == EXPECTED[LINEAR]
    assert len(found) >= len(EXPECTED) - 2
    assert found != EXPECTED


def test_of_too_many_calls_the_longest_are_kept_and_the_rest_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flames, "MOST_FRAMES", 4)
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](STEPS))
    flame = flame_of(tmp_path / "t.json")
    assert flame.left_out == 2
    assert stacks(flame)[LINEAR] == EXPECTED[LINEAR]
    monkeypatch.setattr(flames, "MOST_NODES", 3)
    assert flame_of(tmp_path / "t.json").pruned > 0


def test_a_trace_without_python_functions_has_no_flame(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"]([e for e in STEPS if e.get("cat") != "python_function"]))
    assert read_traces([tmp_path / "t.json"], picture=True).timelines[str(tmp_path / "t.json")].flame is None
    assert "Host stacks by Python frame" not in run_cli("trace", str(tmp_path / "t.json"), "--output", "html").out


def test_the_page_names_lines_without_being_asked_twice(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](STEPS))
    page = run_cli("trace", str(tmp_path / "t.json"), "--output", "html").out

    assert "Host stacks by Python frame" in page
    assert " at train.py(10): step" in page


def test_the_line_is_one_of_the_thread_that_launched(tmp_path: Path) -> None:
    """Another thread was in a shorter function at that moment; a thread without frames borrows from who waits for it."""
    events: list[Event] = [
        frame("train.py(10): step", "10.000", "90.000"),
        frame("loader.py(5): work", "15.000", "40.000", tid=2),
        call("30.000", "1.000", 1),
        {**call("70.000", "1.000", 2), "tid": 3},
        kernel("100.000", "5.000", 1, name="forward"),
        kernel("110.000", "7.000", 2, name="backward"),
    ]
    (tmp_path / "t.json").write_text(LAYOUTS["kineto"](events))
    (device,) = read_traces([tmp_path / "t.json"], stacks=True).record.files[0].devices

    assert {row.name: row.place for row in device.kernels} == {
        "forward": "train.py(10): step",
        "backward": "train.py(10): step",
    }


def test_threads_named_in_one_half_of_a_file_are_the_same_in_the_other(tmp_path: Path) -> None:
    names: list[Event] = [STEPS[-1]]
    events = [*names, *(call(f"{10 * n}.000", "1.000", n) for n in range(1, 9))]
    text = LAYOUTS["kineto"](events).encode()
    (tmp_path / "t.json").write_bytes(text)
    start = find_events(text) or 0
    layout = sniff(text[start:])
    middle = len(text) // 2 + (first_border(text[len(text) // 2 :], layout) or 0)
    halves = [
        Share(first=start, last=middle - len(layout.between), layout=layout, ends=False),
        Share(first=middle, last=None, layout=layout, ends=True),
    ]
    columns = join([read_kineto(tmp_path / "t.json", half) for half in halves])

    assert columns.threads == ("1/1",)
    assert [lane.label for lane in timeline(columns).lanes] == ["thread 1 (python)"]


def test_a_real_trace_agrees_with_its_own_parent_ids() -> None:
    """Kineto numbers each Python call and its caller; the tree read off the times must be the same."""
    import gzip

    file = real("mi300x_qwen1.5-0.5b.json.gz")
    data: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    calls = [e for e in data["traceEvents"] if e.get("cat") == "python_function"]
    by_id = {e["args"]["Python id"]: e for e in calls}
    pairs: dict[tuple[str, str], int] = {}
    for event in calls:
        caller = by_id.get(event["args"]["Python parent id"])
        if caller:
            key = (flames._common(caller["name"]), flames._common(event["name"]))
            pairs[key] = pairs.get(key, 0) + 1
    flame = flame_of(file)
    seen: dict[tuple[str, str], int] = {}
    for node, parent in enumerate(flame.parent):
        if parent >= 0 and flame.parent[parent] >= 0:
            key = (flame.names[flame.name[parent]], flame.names[flame.name[node]])
            seen[key] = seen.get(key, 0) + flame.count[node]

    assert flame.left_out == 0
    assert sum(seen.values()) == sum(pairs.values()) == 4_264
    # Of two calls the file names a caller that had called another in between, by its own times.
    assert sum(min(times, pairs.get(pair, 0)) for pair, times in seen.items()) == 4_262
