"""`rs.compare` and `rocsolid compare`."""

import json
from pathlib import Path

import pytest
from tests.support import run_cli
from tests.trace.data import LAYOUTS, Event, call, host, kernel, real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

import rocsolid as rs
from rocsolid.errors import InputError
from rocsolid.model.trace import TraceComparison


def write(folder: Path, name: str, *rows: tuple[str, str, str]) -> Path:
    """Write a trace of kernels, one after another: name, operator, length in µs."""
    events: list[Event] = []
    for n, (title, operator, length) in enumerate(rows):
        start = 1000 + n * 100
        events += [
            host("cpu_op", operator, f"{start}.000", "5.000", external=n),
            call(f"{start + 1}.000", "1.000", n),
            kernel(f"{start + 10}.000", length, n, name=title, args={"External id": n}),
        ]
    (folder / name).write_text(LAYOUTS["kineto"](events))
    return folder / name


def changes(comparison: TraceComparison) -> dict[str, tuple[str, str]]:
    return {row.before or row.after: (row.change.value, row.after) for row in comparison.kernels}


def test_kernels_are_matched_by_name_or_by_operator_and_order(tmp_path: Path) -> None:
    before = write(
        tmp_path, "a.json",
        ("Cijk_x", "aten::mm", "10.000"), ("Cijk_y", "aten::mm", "20.000"), ("same", "aten::relu", "5.000"),
        ("old", "aten::cos", "1.000"), ("quick", "aten::sin", "9.000"),
    )  # fmt: skip
    after = write(
        tmp_path, "b.json",
        ("sgemm_x", "aten::mm", "8.000"), ("sgemm_y", "aten::mm", "25.000"), ("same", "aten::relu", "5.000"),
        ("new", "aten::tan", "2.000"), ("quick", "aten::sin", "3.000"),
    )  # fmt: skip
    comparison = rs.compare(before, after)

    assert changes(comparison) == {
        "Cijk_x": ("replaced", "sgemm_x"),
        "Cijk_y": ("replaced", "sgemm_y"),
        "same": ("same", "same"),
        "old": ("removed", ""),
        "new": ("added", "new"),
        "quick": ("faster", "quick"),
    }
    assert {row.name: (row.before, row.after) for row in comparison.categories}["gemm"] == (30_000, 33_000)


def test_kernels_of_two_vendors_are_matched_by_operator() -> None:
    comparison = rs.compare(real("h100_qwen1.5-0.5b.json.gz"), real("mi300x_qwen1.5-0.5b.json.gz"))
    matched = [row for row in comparison.kernels if row.before and row.after]
    time = sum(row.before_ns + row.after_ns for row in comparison.kernels)

    assert (comparison.before_model, comparison.after_model) == ("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X VF")
    assert sum(row.before_ns + row.after_ns for row in matched) > 0.8 * time
    assert any(row.before.startswith("sm90_xmma_gemm") and row.after.startswith("Cijk_") for row in matched)


PAIRS = [
    ("h100_qwen1.5-0.5b.json.gz", "mi300x_qwen1.5-0.5b.json.gz"),
    ("h100_bert-small.json.gz", "mi300x_bert-small.json.gz"),
    ("h200_policy_inference_25ms_39hz.json", "mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json"),
    ("mi300x_vllm_decode_full_hipgraph.json.gz", "mi300x_sglang_decode_hipgraph.json.gz"),
]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_operator_changes_add_up_to_the_total_difference(before: str, after: str) -> None:
    totals = []
    for name in (before, after):
        (device,) = rs.trace(real(name)).files[0].devices
        totals.append(sum(row.time_ns for row in device.categories))
    comparison = rs.compare(real(before), real(after))

    assert sum(row.before_ns for row in comparison.operators) == totals[0]
    assert sum(row.after_ns for row in comparison.operators) == totals[1]
    assert sum(row.delta_ns for row in comparison.operators) == totals[1] - totals[0]
    assert sum(row.after - row.before for row in comparison.by_operator) == totals[1] - totals[0]


def test_operators_of_two_vendors_are_compared_by_name_and_shape() -> None:
    comparison = rs.compare(real(PAIRS[0][0]), real(PAIRS[0][1]))
    totals = {row.name: (round(row.before / 1e6, 2), round(row.after / 1e6, 2)) for row in comparison.by_operator}

    assert totals["aten::mm"] == (6.67, 8.66)
    assert totals["aten::addmm"] == (2.33, 2.95)
    assert not any("splitKreduce" in row.before and row.after.startswith("Cijk_") for row in comparison.kernels)


def replays(folder: Path, name: str, vendor: str, kernels: list[tuple[str, str]]) -> Path:
    """Write a trace of one graph replay, whose kernels have no operator: name, length in µs."""
    events: list[Event] = [call("1000.000", "5.000", 1, f"{vendor}GraphLaunch")]
    for n, (title, length) in enumerate(kernels):
        events.append(kernel(f"{1010 + 100 * n}.000", length, 1, name=title, args={"External id": -1}))
    (folder / name).write_text(LAYOUTS["kineto"](events))
    return folder / name


def test_kernels_inside_graphs_are_matched_by_order_and_category(tmp_path: Path) -> None:
    before = replays(
        tmp_path, "a.json", "cuda",
        [("nvjet_qkv", "10.000"), ("fmha_v8", "5.000"), ("nvjet_qkv", "10.000"), ("triton_poi_fused_a", "1.000"), ("nvjet_up", "30.000")],
    )  # fmt: skip
    after = replays(
        tmp_path, "b.json", "hip",
        [("Cijk_qkv", "12.000"), ("attn_fwd", "9.000"), ("Cijk_qkv", "12.000"), ("Cijk_up", "20.000"), ("triton_red_fused_b", "2.000")],
    )  # fmt: skip
    comparison = rs.compare(before, after)

    matched = {(row.before_kernel, row.after_kernel, row.match.value, row.delta_ns) for row in comparison.operators}
    assert matched == {
        ("nvjet_qkv", "Cijk_qkv", "order", 4_000),
        ("fmha_v8", "attn_fwd", "order", 4_000),
        ("nvjet_up", "Cijk_up", "order", -10_000),
        ("triton_poi_fused_a", "", "unmatched", -1_000),
        ("", "triton_red_fused_b", "unmatched", 2_000),
    }
    assert changes(comparison)["nvjet_up"] == ("replaced", "Cijk_up")
    text = run_cli("compare", str(before), str(after)).out
    assert "97.3 % by order" in text


def test_the_same_kernel_matches_although_its_operator_is_unknown_in_a_replay(tmp_path: Path) -> None:
    before = write(
        tmp_path, "a.json", ("Cijk_x", "aten::mm", "10.000"), ("triton_red_fused_b", "aten::rms_norm", "3.000")
    )
    after = replays(tmp_path, "b.json", "hip", [("Cijk_x", "8.000"), ("triton_red_fused_b", "2.000")])
    text = before.read_text()
    before.write_text(text.replace('"External id": 0', '"External id": 0, "Input Dims": [[4, 4], [4, 4]]', 1))
    comparison = rs.compare(before, after)

    assert {(row.operator, row.shape) for row in comparison.operators} == {
        ("aten::mm", "4x4, 4x4"),
        ("aten::rms_norm", ""),
    }
    assert {(row.name, row.before, row.after) for row in comparison.by_operator} == {
        ("aten::mm", 10_000, 8_000),
        ("aten::rms_norm", 3_000, 2_000),
    }


@pytest.mark.parametrize("after", ["mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json"])
def test_most_work_of_a_real_replay_is_matched_across_vendors(after: str) -> None:
    comparison = rs.compare(real("h200_policy_inference_25ms_39hz.json"), real(after))
    time = sum(row.before_ns + row.after_ns for row in comparison.operators)
    ordered = [row for row in comparison.operators if row.match.value == "order"]
    replaced = [row for row in comparison.kernels if row.before and row.after]

    assert sum(row.before_ns + row.after_ns for row in ordered) > 0.7 * time
    assert len(replaced) > 30
    assert all(row.before_kernel and row.after_kernel for row in ordered)


def test_what_one_trace_does_not_contain_is_not_compared() -> None:
    """The replay on the MI300X has no host events: its graph launches and the causes of its idle time are unknown, not 0."""
    names = ("h200_policy_inference_25ms_39hz.json", "mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json")
    comparison = rs.compare(*map(real, names))

    assert "idle_ns" in {change.name for change in comparison.metrics}
    assert not {change.name for change in comparison.metrics} & {"graph_launches", "graph_kernel_time_ns"}
    assert comparison.idle == ()
    assert any(text.startswith("after: ") and "no host events" in text for text in comparison.doubts)
    assert "graph launches" not in run_cli("compare", *map(str, map(real, names))).out


def test_a_comparison_with_a_doubtful_trace_says_so(tmp_path: Path) -> None:
    before = write(tmp_path, "a.json", ("k", "aten::mm", "10.000"))
    after = tmp_path / "b.json"
    events: list[Event] = [call("1000.000", "1.000", 1), kernel("1010.000", "10.000", 1, name="k")]
    after.write_text(LAYOUTS["kineto"]([*events, call("1020.000", "9000.000", 2, "hipStreamSynchronize")]))
    comparison = rs.compare(before, after)

    assert [text.partition(":")[0] for text in comparison.doubts] == ["after"]
    assert "uncertain: after: hipStreamSynchronize waits" in " ".join(
        run_cli("compare", str(before), str(after)).out.split()
    )


def test_time_by_module_is_compared_with_stacks() -> None:
    before, after = real(PAIRS[0][0]), real(PAIRS[0][1])
    comparison = rs.compare(before, after, stacks=True)
    modules = {row.name: (row.before, row.after) for row in comparison.modules}
    total = [sum(getattr(row, f"{side}_ns") for row in comparison.operators) for side in ("before", "after")]

    assert min(modules["Qwen2MLP"]) > 0
    assert "(outside modules)" in modules
    assert [sum(row[n] for row in modules.values()) for n in (0, 1)] == total


def test_steps_are_compared_in_their_order(tmp_path: Path) -> None:
    files = []
    for name, lengths in (("a.json", (50, 60, 70)), ("b.json", (40, 45))):
        steps = [
            host("user_annotation", f"ProfilerStep#{number}", f"{1000 * number}.000", f"{length}.000")
            for number, length in enumerate(lengths, 4)
        ]
        (tmp_path / name).write_text(LAYOUTS["kineto"]([*steps, kernel("4010.000", "10.000", 1)]))
        files.append(tmp_path / name)
    comparison = rs.compare(*files)

    assert [(row.name, row.before, row.after) for row in comparison.steps] == [
        ("step 1", 50_000, 40_000),
        ("step 2", 60_000, 45_000),
    ]
    text = run_cli("compare", *map(str, files)).out
    assert "steps (host time)" in text
    assert "the traces have 3 and 2 steps, so operators are compared by their time per step" in text


def test_operators_are_compared_per_step_if_the_numbers_of_steps_differ(tmp_path: Path) -> None:
    """Three steps of 10 µs against one of 12 µs: each step became slower, although the total is smaller."""
    files = []
    for name, steps, length in (("a.json", 3, "10.000"), ("b.json", 1, "12.000")):
        events = [
            event
            for number in range(1, steps + 1)
            for event in (
                host("user_annotation", f"ProfilerStep#{number}", f"{1000 * number}.000", "500.000"),
                kernel(f"{1000 * number + 10}.000", length, number),
            )
        ]
        (tmp_path / name).write_text(LAYOUTS["kineto"](events))
        files.append(str(tmp_path / name))
    text = " ".join(run_cli("compare", *files).out.split())

    assert "device time per step: 10.00 µs before, 12.00 µs after, +2.00 µs" in text
    assert "by operator per step" in text
    assert "gains:" not in text
    assert "by operator per step" in run_cli("compare", *files, "--output", "html").out


def test_fused_attention_is_compared_together_with_what_replaces_it() -> None:
    """On the H200 most attention of π0 is matrix products and softmax, on the MI300X fused kernels."""
    names = ("h200_policy_inference_25ms_39hz.json", "mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json")
    text = " ".join(run_cli("compare", *(str(real(name)) for name in names)).out.split())

    assert "attention: 81 fused kernels before, 225 after" in text
    assert "compare gemm, attention, reduction together: 16.76 ms before, 22.04 ms after" in text


def test_less_total_time_is_not_called_slower(tmp_path: Path) -> None:
    before = write(tmp_path, "a.json", *[("k", "aten::mm", "10.000")] * 4)
    after = write(tmp_path, "b.json", *[("k", "aten::mm", "12.000")] * 2)
    (row,) = rs.compare(before, after).kernels

    assert row.change.value == "fewer runs"


def test_unmatched_time_is_shown(tmp_path: Path) -> None:
    before = write(tmp_path, "a.json", ("k", "aten::mm", "10.000"), ("ncclDevKernel_x", "c10d::allreduce_", "7.000"))
    after = write(tmp_path, "b.json", ("k", "aten::mm", "4.000"))
    text = " ".join(run_cli("compare", str(before), str(after)).out.split())

    assert "device time: 17.00 µs before, 4.00 µs after, -13.00 µs" in text
    assert "unmatched: 7.00 µs before, 0 ns after" in text


def test_the_command_compares_traces_and_saved_reports(tmp_path: Path) -> None:
    before = write(tmp_path, "a.json", ("k", "aten::mm", "10.000"))
    after = write(tmp_path, "b.json", ("k", "aten::mm", "4.000"))
    saved = tmp_path / "saved.json"
    run_cli("trace", str(before), "--output", "json", "--out", str(saved))
    text = run_cli("compare", str(before), str(after))
    data = run_cli("compare", str(saved), str(after), "--output", "json").json()

    assert "0 same, 1 faster, 0 slower" in text.out
    assert data["schema"] == "rocsolid/trace-comparison/1"
    assert data["comparison"]["kernels"][0]["change"] == "faster"


@pytest.mark.parametrize("broken", [{"operator": [0, 7]}, {"name": [-1, 0]}, {"time_ns": [1]}])
def test_a_changed_report_is_still_compared(tmp_path: Path, broken: dict[str, list[int]]) -> None:
    after = replays(tmp_path, "b.json", "hip", [("Cijk_x", "8.000"), ("attn_fwd", "2.000")])
    saved = tmp_path / "saved.json"
    run_cli("trace", str(after), "--output", "json", "--out", str(saved))
    report = json.loads(saved.read_text())
    report["files"][0]["devices"][0]["order"] |= broken
    saved.write_text(json.dumps(report, indent=2))
    comparison = rs.compare(saved, after)

    assert sum(row.delta_ns for row in comparison.operators) == 0
    assert {row.match.value for row in comparison.operators} == {"category"}


def test_cpu_operators_are_compared_by_name_without_the_operators_inside_them(tmp_path: Path) -> None:
    def operators(name: str, *lengths: int) -> Path:
        outer, inner, other = (f"{length}.000" for length in lengths)
        events = [
            host("cpu_op", "aten::linear", "100.000", outer),
            host("cpu_op", "aten::addmm", "110.000", inner),
            host("cpu_op", "aten::relu", "1000.000", other),
        ]
        (tmp_path / name).write_text(LAYOUTS["kineto"](events))
        return tmp_path / name

    comparison = rs.compare(operators("a.json", 60, 40, 5), operators("b.json", 90, 80, 5))

    assert comparison.cpu
    assert {row.name: (row.before, row.after) for row in comparison.by_operator} == {
        "aten::addmm": (40_000, 80_000),
        "aten::linear": (20_000, 10_000),
        "aten::relu": (5_000, 5_000),
    }
    assert comparison.kernels == ()
    ran = run_cli("compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert ran.code == 0
    assert "CPU time: 65.00 µs before, 95.00 µs after, +30.00 µs" in ran.out
    assert "kernels:" not in ran.out
    assert "Kernels" not in run_cli("compare", *(str(tmp_path / f) for f in ("a.json", "b.json")), "--output=html").out


def test_a_trace_without_gpu_work_cannot_be_compared_with_one_that_has(tmp_path: Path) -> None:
    one = write(tmp_path, "a.json", ("k", "aten::mm", "10.000"))
    (tmp_path / "cpu.json").write_text(LAYOUTS["kineto"]([host("cpu_op", "aten::mm", "1.000", "1.000")]))

    with pytest.raises(InputError, match="has no GPU work"):
        rs.compare(one, tmp_path / "cpu.json")
