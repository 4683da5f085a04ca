"""Kernels of graph replays get operators, shapes and Python lines from a trace of the capture; times by module."""

from pathlib import Path

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, Event, call, host, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import analyze_traces

REPLAY, CAPTURE = "mi300x_vllm_decode_full_hipgraph.json.gz", "mi300x_vllm_decode_full_capture.json.gz"


def test_all_kernels_of_a_real_replay_get_their_operator_and_shape() -> None:
    alone = analyze_traces([real(REPLAY)]).report.files[0].devices[0]
    file = analyze_traces([real(REPLAY)], capture=real(CAPTURE)).report.files[0]
    (device,) = file.devices

    assert file.capture
    assert (file.capture.kernels_with_operator, file.capture.kernels, file.capture.graphs) == (421, 421, 1)
    assert not [row for row in device.operators if row.in_graph and not row.name]
    linear = next(row for row in device.operators if row.shape.startswith("5120, 32x2880"))
    assert (linear.name, linear.calls, linear.in_graph) == ("aten::addmm", 24, True)
    assert linear.roofline
    gemm = next(row for row in device.kernels if row.operator == "aten::addmm")
    assert "vllm/model_executor/layers/utils.py(122)" in gemm.location
    for field in ("kernel_time_ns", "busy_ns", "kernel_count", "graph_kernel_count"):
        assert getattr(device, field) == getattr(alone, field)


def captured(names: list[str], *, cuda: bool) -> list[Event]:
    """A trace in which launches are recorded in a capture, each by its own operator."""
    vendor = "cuda" if cuda else "hip"
    events = [call("1.000", "1.000", 1, f"{vendor}StreamBeginCapture")]
    for number, name in enumerate(names):
        start = 10 + 10 * number
        operator = host("cpu_op", f"aten::op{number}", f"{start}.000", "8.000", external=100 + number)
        operator["args"]["Input Dims"] = [[number + 1, 4]]
        launch = call(f"{start + 1}.000", "1.000", 50 + number, f"{vendor}LaunchKernel")
        launch["args"] = {"correlation": 50 + number, "External id": 100 + number}
        launch["args"] |= {} if cuda else {"kernel": name}
        events += [operator, launch]
    return [*events, call("900.000", "1.000", 2, f"{vendor}StreamEndCapture")]


def replayed(names: list[str], vendor: str, replays: int = 2) -> list[Event]:
    events: list[Event] = []
    for replay in range(replays):
        begin = 1000 + 1000 * replay
        events.append(call(f"{begin}.000", "5.000", replay + 1, f"{vendor}GraphLaunch"))
        for number, name in enumerate(names):
            start = f"{begin + 10 + 10 * number}.000"
            events.append(kernel(start, "5.000", replay + 1, name=name, args={"External id": -1}))
    return events


def write(folder: Path, name: str, events: list[Event]) -> Path:
    (folder / name).write_text(LAYOUTS["kineto"](events))
    return folder / name


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_kernels_are_matched_by_order_and_name(tmp_path: Path, vendor: str) -> None:
    names = ["a", "b", "a", "c"]
    capture = write(tmp_path, "capture.json", captured(names, cuda=vendor == "cuda"))
    replay = write(tmp_path, "replay.json", replayed(names, vendor))
    (device,) = analyze_traces([replay], capture=capture).report.files[0].devices

    assert {(row.name, row.shape, row.calls, row.count) for row in device.operators} == {
        (f"aten::op{number}", f"{number + 1}x4", 2, 2) for number in range(4)
    }


def marked(events: list[Event], mark: str, start: int, length: int) -> list[Event]:
    """The same events inside a mark of `rs.capture(..., annotate=True)`."""
    return [host("user_annotation", f"rocsolid graph {mark}", f"{start}.000", f"{length}.000"), *events]


def shifted(events: list[Event], by: int) -> list[Event]:
    moved = []
    for event in events:
        args = {
            key: value + by if key in ("correlation", "External id") else value for key, value in event["args"].items()
        }
        moved.append({**event, "ts": f"{float(event['ts']) + by:.3f}", "args": args})
    return moved


def test_marks_tell_graphs_with_the_same_kernels_apart(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    for mark, rows in (("aa", 1), ("bb", 2)):
        events = captured(["a", "b"], cuda=True)
        for event in events:
            event["args"].update({"Input Dims": [[rows, 4]]} if event["cat"] == "cpu_op" else {})
        write(folder, f"{mark}.json", marked(events, mark, 0, 950))
    launches = marked(replayed(["a", "b"], "cuda", 1), "bb", 999, 10)
    more = shifted(marked(replayed(["a", "b"], "cuda", 1), "aa", 999, 10), 5000)
    file = analyze_traces([write(tmp_path, "replay.json", [*launches, *more])], capture=folder).report.files[0]

    assert sorted((row.shape, row.kernels[0].time_ns) for row in file.devices[0].operators) == [
        ("1x4", 5_000), ("1x4", 5_000), ("2x4", 5_000), ("2x4", 5_000),
    ]  # fmt: skip
    order = [file.devices[0].operators[n].shape for n in file.devices[0].order.operator]
    assert file.capture
    assert (file.capture.graphs, file.capture.kernels_with_operator) == (2, 4), order


def test_a_trace_of_capture_and_replays_needs_no_second_file(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    both = [*captured(names, cuda=False), *replayed(names, "hip")]
    file = analyze_traces([write(tmp_path, "both.json", both)]).report.files[0]

    assert file.capture
    assert (file.capture.matched_kernels, file.capture.kernels) == (6, 6)
    assert {row.name for row in file.devices[0].operators} == {"aten::op0", "aten::op1", "aten::op2"}


def test_kernels_of_a_real_replay_get_their_module() -> None:
    file = analyze_traces([real(REPLAY)], capture=real(CAPTURE)).report.files[0]
    (device,) = file.devices
    modules = {row.name: row for row in file.modules}

    assert modules
    assert sum(row.own_ns for row in file.modules) > 0.8 * device.graph_kernel_time_ns
    assert max(row.device_ns for row in file.modules) <= sum(row.time_ns for row in device.categories)


def test_a_lost_kernel_does_not_shift_the_others(tmp_path: Path) -> None:
    capture = write(tmp_path, "capture.json", captured(["a", "b", "c", "d"], cuda=False))
    replay = write(tmp_path, "replay.json", replayed(["a", "c", "d"], "hip"))
    file = analyze_traces([replay], capture=capture).report.files[0]

    assert {(row.name, row.kernels[0].name) for row in file.devices[0].operators} == {
        ("aten::op0", "a"), ("aten::op2", "c"), ("aten::op3", "d"),
    }  # fmt: skip


def test_the_capture_of_another_graph_matches_nothing(tmp_path: Path) -> None:
    capture = write(tmp_path, "capture.json", captured(["x", "y", "z", "a"], cuda=False))
    replay = write(tmp_path, "replay.json", replayed(["a", "b", "c", "d"], "hip"))
    printed = run_cli("trace", str(replay), "--capture", str(capture))

    assert "0 of 8 kernels in graph replays have their operator" in " ".join(printed.out.split())


def test_device_time_by_module() -> None:
    file = analyze_traces([real("mi300x_qwen1.5-0.5b.json.gz")], stacks=True).report.files[0]
    (device,) = file.devices

    assert file.modules[0].own_ns > 0
    assert sum(row.own_ns for row in file.modules) <= sum(row.time_ns for row in device.categories)
    assert all(row.own_ns <= row.device_ns for row in file.modules)
    mlp = next(row for row in file.modules if row.name == "Qwen2MLP")
    assert mlp.calls == 24
    assert mlp.device_ns > mlp.own_ns > 0
