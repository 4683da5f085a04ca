"""Categories, FLOPs, bytes and roofline: by operator first, and equal to TraceLens where both have a formula."""

import json
from pathlib import Path

import pytest
from tests.trace.data import real, real_folder

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

import rocsolid as rs
from rocsolid.catalog.device_peaks import DEVICE_PEAKS, infer_peaks
from rocsolid.model.trace import Category
from rocsolid.trace.analysis.categories import category
from rocsolid.trace.analysis.cost_model import operator_cost, parse_message
from rocsolid.trace.analysis.kernel_labels import kernel_labels

HERE = Path(__file__).parent
KERNELS = [line.split("\t", 2) for line in (HERE / "kernel_categories.tsv").read_text().splitlines()]
COSTS = json.loads((HERE / "tracelens_costs.json").read_text())


def detail(dims: object, types: object, values: object = ()) -> str:
    return "\0".join([json.dumps(dims), json.dumps(types), json.dumps(values), ""])


def test_every_kernel_name_of_all_our_traces_has_its_category() -> None:
    """The names come from 43 public traces of twelve GPU models, each with the operator that launched it most."""
    wrong = [
        (name, operator, expected) for expected, operator, name in KERNELS if category(name, operator).value != expected
    ]

    assert not wrong
    assert not [name for expected, _, name in KERNELS if expected == "other"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN7ck_tile6kentryINS_6gfx9_tELi1ENS_13FmhaFwdKernelINS_23BlockFmhaPipelineQRKSVS", Category.ATTENTION),
        ("sage_fwd", Category.ATTENTION),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", Category.GEMM),
        ("triton_poi_fused__scaled_dot_product_efficient_attention_clone_2", Category.ELEMENTWISE),
    ],
)
def test_names_that_were_wrong(name: str, expected: Category) -> None:
    assert category(name) is expected


def test_all_real_traces_have_less_than_2_percent_of_unknown_time() -> None:
    folder = real_folder()
    if folder is None:
        pytest.skip("the real traces are not available: set SAMPLE_TRACES")
    for file in sorted(folder.glob("*/*qwen*.gz")) + sorted(folder.glob("pi0/*.json")):
        for device in rs.trace(file).files[0].devices:
            assert device.unknown_ns <= 0.02 * device.kernel_time_ns, file


@pytest.mark.parametrize("row", COSTS, ids=lambda row: f"{row['name']}-{row['gflop']:.4g}")
def test_flops_and_bytes_equal_those_of_tracelens(row: dict[str, object]) -> None:
    """From the reports in TraceLens' repository (MIT). Exceptions are explained in docs/reference/trace.md."""
    cost = operator_cost(str(row["name"]), detail(row["dims"], row["types"], row["values"]))
    assert cost
    # TraceLens counts both gradients of a convolution even where the mask says that only one was computed.
    one_gradient = row["name"] == "aten::convolution_backward" and "[False, True" in str(row["values"])
    parts = 2 if one_gradient else 1
    # It leaves out the bias of some convolutions, at most 3 % of their FLOPs.
    assert parts * cost.flops == pytest.approx(
        float(str(row["gflop"])) * 1e9, rel=0.035 if "conv" in str(row["name"]) else 0.01
    )
    assert parts * cost.bytes == pytest.approx(float(str(row["mib"])) * 2**20, rel=0.01)


def test_a_real_operator_has_its_rates_and_share_of_the_roofline() -> None:
    (device,) = rs.trace(real("mi300x_qwen1.5-0.5b.json.gz")).files[0].devices
    row = next(row for row in device.operators if row.shape == "8944x1024, 1024x2816")

    assert device.peaks
    assert (device.peaks.chip, device.peaks.inferred) == ("MI300X", False)
    assert (row.name, row.calls, row.device_ns) == ("aten::mm", 48, 5_308_273)
    assert row.flops == 48 * 2 * 8944 * 1024 * 2816
    assert row.tflops == pytest.approx(466.4, abs=0.1)
    assert row.gb_per_s == pytest.approx(673.3, abs=0.1)
    assert row.roofline == pytest.approx(466.4 / 1307.4, abs=0.001)
    kernel = next(k for k in device.kernels if "MT128x224x64" in k.name)
    assert kernel.tflops == pytest.approx(466.4, abs=0.1)
    assert sum(r.device_ns for r in device.operators) == sum(c.time_ns for c in device.categories)


@pytest.mark.parametrize(
    ("name", "units", "memory", "chip"),
    [
        ("", 304, 206141652992, "MI300X"),
        ("AMD Radeon Graphics", 104, 68702699520, "MI210 or MI250"),
        ("NVIDIA A100-PG509-200", 108, 42297524224, "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", 0, 84990623744, "A100"),
        ("", 256, 270566162432, "MI350X or MI355X"),
        ("NVIDIA H200", 132, 150111715328, "H200"),
        ("NVIDIA H100 PCIe", 114, 85018279936, "H100 PCIe"),
        ("", 0, 0, None),
        ("NVIDIA A30", 56, 24 << 30, None),
    ],
)
def test_a_chip_is_inferred_from_its_name_or_its_size(name: str, units: int, memory: int, chip: str | None) -> None:
    found = infer_peaks(name, compute_units=units, memory_bytes=memory)
    assert (found.name if found else None) == chip


@pytest.mark.parametrize(
    ("chip", "clock_ghz", "operations"),
    [
        ("MI100", 1.502, {"fp16": 1024, "bf16": 512, "fp32": 256, "fp64": 64}),
        ("MI210", 1.7, {"fp16": 1024, "bf16": 1024, "fp32": 256, "fp64": 256}),
        ("MI250X", 1.7, {"fp16": 1024, "bf16": 1024, "fp32": 256, "fp64": 256}),
        ("MI300A", 2.1, {"fp16": 2048, "fp8": 4096, "fp32": 256, "fp64": 256}),
        ("MI300X", 2.1, {"fp16": 2048, "fp8": 4096, "fp32": 256, "fp64": 256}),
        ("MI325X", 2.1, {"fp16": 2048, "fp8": 4096, "fp32": 256, "fp64": 256}),
        ("MI350X", 2.2, {"fp16": 4096, "fp8": 8192, "fp4": 16384, "fp32": 256, "fp64": 128}),
        ("MI355X", 2.4, {"fp16": 4096, "fp8": 8192, "fp4": 16384, "fp32": 256, "fp64": 128}),
        ("7900 XTX", 2.5, {"fp16": 512, "fp32": 256}),
        ("9070 XT", 2.97, {"fp16": 1024, "fp8": 2048, "fp32": 256}),
        ("V100", 1.53, {"fp16": 1024, "fp32": 128, "fp64": 64}),
        ("A100", 1.41, {"fp16": 2048, "tf32": 1024, "int8": 4096, "fp32": 128, "fp64": 128}),
        ("H100", 1.83, {"fp16": 4096, "fp8": 8192, "tf32": 2048}),
        ("H200", 1.98, {"fp32": 256, "fp64": 256}),
        ("H100 PCIe", 1.62, {"fp16": 4096, "fp8": 8192, "tf32": 2048}),
        ("B200", 1.86, {"fp16": 8192, "fp8": 16384, "fp4": 32768}),
        ("L40S", 2.52, {"fp16": 1024, "fp8": 2048, "fp32": 256}),
        ("4090", 2.52, {"fp16": 512, "fp8": 1024, "fp32": 256}),
    ],
)
def test_peaks_are_units_times_clock_times_operations(chip: str, clock_ghz: float, operations: dict[str, int]) -> None:
    peaks = next(entry for entry in DEVICE_PEAKS if entry.name == chip)
    for kind, per_clock in operations.items():
        assert peaks.tflops[kind] == pytest.approx(peaks.compute_units * clock_ghz * per_clock / 1e3, rel=0.015), kind


def test_attention_costs_half_when_causal_and_depends_on_the_layout() -> None:
    shape, types = [2, 8, 128, 64], ["c10::Half"] * 3
    full = operator_cost(
        "aten::_scaled_dot_product_flash_attention", detail([shape] * 3, types, ["", "", "", "0.", "False"])
    )
    half = operator_cost(
        "aten::_scaled_dot_product_flash_attention", detail([shape] * 3, types, ["", "", "", "0.", "True"])
    )
    assert full
    assert half
    assert full.flops == 4 * 2 * 8 * 128 * 128 * 64 == 2 * half.flops
    other = operator_cost("aten::_flash_attention_forward", detail([[2, 128, 8, 64]] * 3, types))
    assert other
    assert other.flops == full.flops


@pytest.mark.parametrize(
    ("operator", "dims", "types", "mib"),
    [
        ("aten::native_batch_norm", [[10, 64, 112, 112], *[[64]] * 4], ["c10::BFloat16"] * 5, 30.625732421875),
        ("aten::native_batch_norm_backward", [[10, 512, 7, 7]] * 2 + [[512]] * 5, ["c10::BFloat16"] * 7, 1.439453125),
        ("aten::native_layer_norm", [[3136, 8, 768], [], [768], [768]], ["c10::BFloat16", "", *["float"] * 2], 73.508),
        ("aiter::rmsnorm", [[15360, 4096], [15360, 4096], [4096], []], ["c10::BFloat16"] * 3 + ["Scalar"], 240.0078125),
        ("aiter::add_rmsnorm", [[15360, 4096]] * 4 + [[4096], []], ["c10::BFloat16"] * 5 + ["Scalar"], 480.0078125),
    ],
)
def test_norms_move_the_bytes_that_tracelens_counts(
    operator: str, dims: list[list[int]], types: list[str], mib: float
) -> None:
    cost = operator_cost(operator, detail(dims, types))
    assert cost
    assert cost.bytes == pytest.approx(mib * 2**20, rel=0.01)


@pytest.mark.parametrize(
    ("operator", "dims", "types", "elements"),
    [
        ("aten::mul", [[256], [], [256]], ["c10::BFloat16", "double", "c10::BFloat16"], 2 * 256),
        ("aten::mul", [[256], [256]], ["c10::BFloat16"] * 2, 3 * 256),
        ("aten::add", [[256], [256], [], [256]], ["c10::BFloat16"] * 2 + ["Scalar", "c10::BFloat16"], 3 * 256),
        ("aten::neg", [[256], [256]], ["c10::BFloat16"] * 2, 2 * 256),
    ],
)
def test_a_tensor_given_as_out_is_not_counted_twice(
    operator: str, dims: list[list[int]], types: list[str], elements: int
) -> None:
    cost = operator_cost(operator, detail(dims, types))
    assert cost
    assert (cost.bytes, cost.flops) == (2 * elements, 256)


@pytest.mark.parametrize(
    "text", ["", "x", "\0\0", detail([[1, -2]], ["float"]), detail([[4, 4], [5, 4]], ["float", "float"])]
)
def test_inputs_that_make_no_sense_have_no_cost(text: str) -> None:
    assert operator_cost("aten::mm", text) is None


def test_a_message_has_its_size_and_bus_bandwidth() -> None:
    message = parse_message('"allreduce"\x001024\x001024\x00"BFloat16"\x008\0')
    assert message
    assert (message.bytes, message.ranks, message.bus_bytes) == (2048, 8, 2048 * 2 * 7 / 8)
    (device,) = rs.trace(real("mi300x_resnet_train_checkpoint.json.gz")).files[0].devices
    assert [(row.name, row.bytes, row.count) for row in device.messages][:2] == [
        ("allreduce", 17_632_384, 3),
        ("allreduce", 5_746_640, 3),
    ]


def test_tensile_kernels_have_distinct_labels() -> None:
    (device,) = rs.trace(real("mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json")).files[0].devices
    tensile = [row for row in device.kernels if row.name.startswith("Cijk_")]
    labels = [row.label for row in tensile]

    assert len(set(labels)) == len(labels) > 10
    assert all(label.startswith("Tensile ") and len(label) < 60 for label in labels)
    assert sum("MT" in label for label in labels) > 10
    (mangled,) = kernel_labels(
        ["_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb0EEEvPT0_PT_PfS4_"]
    ).values()
    assert mangled == "aiter::add_rmsnorm_quant_kernel"
    (custom,) = kernel_labels(["Custom_Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x144x64_MI16x16x1"]).values()
    assert custom == "Tensile Alik_Bljk BBS MT256x144x64"
