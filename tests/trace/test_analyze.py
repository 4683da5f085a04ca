"""The analysis: categories, causes of idle time, graphs, copies, launches, memory."""

import re
from pathlib import Path

import pytest
from tests.trace.data import LAYOUTS, call, copy, host, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.model.trace import Category, TraceFile
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.analysis.categories import PATTERNS, category
from rocsolid.trace.read import read_trace


def read(folder: Path, *events: dict[str, object]) -> TraceFile:
    (folder / "t.json").write_text(LAYOUTS["kineto"](list(events)))
    return analyze_trace("t.json", read_trace(folder / "t.json"))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.family)
def test_kernel_names_of_real_traces_have_the_right_category(pattern: object) -> None:
    from rocsolid.trace.analysis.categories import Pattern

    assert isinstance(pattern, Pattern)
    assert {category(name) for name in pattern.examples} == {pattern.category}
    assert all(re.search(pattern.pattern, name) for name in pattern.examples)


def test_kernels_of_converted_rocprof_output_are_read(tmp_path: Path) -> None:
    event = {"name": "attn_fwd.kd", "cat": "gpu", "ph": "X", "ts": "1.000", "dur": "2.500", "pid": 0, "tid": 0}
    (device,) = read(tmp_path, {**event, "args": {"grid": "256x1", "block": 256}}).devices

    assert (device.kernel_count, device.kernel_time_ns) == (1, 2500)


def test_an_unknown_kernel_name_is_other() -> None:
    assert category("my_kernel") is Category.OTHER


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("mi300x_sglang_decode_hipgraph.json.gz", {"gemm": 5_776_000, "attention": 2_130_000}),
        ("v100_ns_resolution.json.gz", {"convolution": 300_861_037}),
        ("mi300x_resnet_train_checkpoint.json.gz", {"collective": 71_500_000}),
    ],
)
def test_94_percent_of_a_real_trace_has_a_category(name: str, largest: dict[str, int]) -> None:
    (device,) = analyze_trace(name, read_trace(real(name))).devices
    times = {row.category.value: row.time_ns for row in device.categories}

    assert times.get("other", 0) < 0.06 * sum(times.values())
    for key, value in largest.items():
        assert times[key] == pytest.approx(value, rel=0.01)


def test_idle_times_agree_with_an_independent_count() -> None:
    """By the launching call: late 13.875 ms in 101 gaps, in flight 0.271, queued 687.099, unknown 91.792."""
    (device,) = analyze_trace("t", read_trace(real("a100_train_cudagraph.json.gz"))).devices
    idle = {row.cause.value: (row.time_ns, row.gap_count) for row in device.idle}

    assert idle["late-launch"][0] + idle["sync"][0] == 13_875_000
    assert idle["late-launch"][1] + idle["sync"][1] == 101
    assert idle["launch-in-progress"][0] == 271_000
    assert idle["queued"][0] + idle["between-graph-nodes"][0] + idle["stream-dependency"][0] == 687_099_000
    assert idle["unknown"][0] == 91_792_000


# Two kernels, 10 to 20 and 50 to 60. The call that launched the second, and the host activity, decide the cause.
GAPS = {
    "late-launch": [call("30.000", "2.000", 2)],
    "launch-in-progress": [call("19.000", "5.000", 2)],
    "queued": [call("11.000", "2.000", 2)],
    "sync": [call("12.000", "10.000", 9, "hipStreamSynchronize"), call("30.000", "2.000", 2)],
    "blocking-copy": [call("12.000", "10.000", 9, "hipMemcpyWithStream"), call("30.000", "2.000", 2)],
    "data-loader": [
        host("cpu_op", "enumerate(DataLoader)#_Iter.__next__", "21.000", "22.000"),
        call("45.000", "2.000", 2),
    ],
    "unknown": [],
}


@pytest.mark.parametrize("cause", GAPS)
def test_each_cause_of_idle_time(tmp_path: Path, cause: str) -> None:
    trace = read(
        tmp_path, kernel("10.000", "10.000", 1), kernel("50.000", "10.000", 2), call("5.000", "2.000", 1), *GAPS[cause]
    )
    (device,) = trace.devices
    (gap,) = device.gaps

    assert (gap.cause.value, gap.duration_ns, gap.start_ns) == (cause, 30_000, 10_000)
    assert [(row.cause.value, row.time_ns, row.gap_count) for row in device.idle] == [(cause, 30_000, 1)]


def test_queued_work_after_work_of_another_stream_is_a_stream_dependency(tmp_path: Path) -> None:
    second = kernel("50.000", "10.000", 2, args={"stream": 9})
    trace = read(tmp_path, kernel("10.000", "10.000", 1), second, call("5.000", "2.000", 1), call("8.000", "1.000", 2))

    assert trace.devices[0].gaps[0].cause.value == "stream-dependency"


def test_a_gap_inside_a_graph_replay(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        call("5.000", "2.000", 1, "hipGraphLaunch"),
        kernel("10.000", "10.000", 1),
        kernel("50.000", "9.000", 1),
    )
    (device,) = trace.devices
    (graph,) = device.graphs

    assert device.gaps[0].cause.value == "between-graph-nodes"
    assert (graph.launches, graph.kernels_each, graph.kernel_time_ns, graph.launch_mean_ns) == (1, 2, 19_000, 2000)
    assert device.kernels[0].graph_count == 2


def test_copies_by_direction_and_memory(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        copy("1.000", "2.000", 1, 4000),
        copy("5.000", "2.000", 2, "4000"),
        copy("9.000", "1.000", 3, 10, "Memcpy DtoH (Device -> Pageable)"),
        {**copy("12.000", "1.000", 4, None, "CopyDeviceToHost"), "args": {"device": 0, "stream": 7}},
    )
    rows = {
        (r.direction, r.memory): (r.count, r.bytes, r.time_ns, r.unknown_size_count) for r in trace.devices[0].copies
    }

    assert rows == {
        ("HtoD", "pinned"): (2, 8000, 4000, 0),
        ("DtoH", "pageable"): (1, 10, 1000, 0),
        ("DtoH", ""): (1, 0, 1000, 1),
    }
    assert trace.devices[0].copies[0].gb_per_s == 2.0


def test_operators_by_id_and_by_time(tmp_path: Path) -> None:
    """Operator and kernel share an external id; without one, the operator around the launch call is used."""
    trace = read(
        tmp_path,
        host("cpu_op", "aten::linear", "1.000", "50.000", external=70),
        host("cpu_op", "aten::addmm", "2.000", "30.000", external=71),
        host("cpu_op", "aten::relu", "40.000", "5.000", external=72),
        call("3.000", "1.000", 1),
        call("41.000", "1.000", 2),
        kernel("10.000", "7.000", 1, args={"External id": 71}),
        kernel("50.000", "5.000", 2, args={"External id": 999}),
    )
    rows = {r.name: r.device_ns for r in trace.devices[0].operators}

    assert rows == {"aten::addmm": 7000, "aten::relu": 5000}


def test_memory_and_steps_and_regions(tmp_path: Path) -> None:
    def report(ts: str, total: int) -> dict[str, object]:
        args = {"Total Allocated": total, "Bytes": 5, "Device Id": 0, "Device Type": 1}
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "args": args,
        }

    trace = read(
        tmp_path,
        report("1.000", 100),
        report("2.000", 900),
        report("3.000", 50),
        host("user_annotation", "ProfilerStep#1", "1.000", "10.000"),
        host("user_annotation", "mine", "1.000", "4.000"),
        host("cpu_op", "Torch-Compiled Region: 0/0", "2.000", "3.000"),
        host("cpu_op", "Torch-Compiled Region: 1/0", "6.000", "3.000"),
    )
    (memory,) = trace.memory

    assert (memory.peak_bytes, memory.allocated_bytes, memory.times_ns) == (900, (100, 900, 50), (0, 1000, 2000))
    assert [step.name for step in trace.steps] == ["ProfilerStep#1"]
    assert {region.name for region in trace.regions} == {
        "mine",
        "Torch-Compiled Region: 0/0",
        "Torch-Compiled Region: 1/0",
    }
    assert trace.graph_breaks == 1


def test_exposed_communication(tmp_path: Path) -> None:
    collective = kernel("10.000", "20.000", 1, name="ncclDevKernel_Generic_1(x)", args={"stream": 3})
    trace = read(tmp_path, collective, kernel("25.000", "10.000", 2))

    assert trace.devices[0].collectives.time_ns == 20_000
    assert trace.devices[0].collectives.exposed_ns == 15_000


def test_each_device_has_its_own_metrics(tmp_path: Path) -> None:
    """A graph launch belongs to the device on which it launched work."""
    trace = read(
        tmp_path,
        call("1.000", "1.000", 1, "cudaGraphLaunch"),
        call("3.000", "1.000", 2, "cudaGraphLaunch"),
        call("5.000", "1.000", 3, "cudaGraphLaunch"),
        kernel("10.000", "5.000", 1, args={"device": 0}),
        kernel("10.000", "6.000", 2, args={"device": 1}),
        kernel("30.000", "7.000", 3, args={"device": 1}),
    )
    found = [(d.device, d.kernel_count, d.span_ns, d.idle_ns, d.graph_launches) for d in trace.devices]

    assert found == [("0", 1, 5000, 0, 1), ("1", 2, 27_000, 14_000, 2)]
