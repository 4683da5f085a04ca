"""Peak bandwidth, peak operations, compute units and wavefronts of GPUs, with their sources. Other GPUs are unknown."""

import re
from dataclasses import replace
from typing import Final

from rocsolid.model.device_peaks import DevicePeaks
from rocsolid.model.evidence import Evidence, claim, source

_MODEL_NAME: Final = re.compile(
    r"\bMI\d{2,3}[AX]?\b|(?<=RX )[79]\d{3}(?: XTX?| GRE)?|(?<=RTX )\d{4}\b|\b(?:[ABHV][123]\d0|L40S)(?=\b|-)"
)
_UNITS: Final = claim(
    "ROCm documentation, reference/gpu-specs", "Compute units by model; for a card with two dies, per die."
)
_WAVES: Final = source(
    "rocprofiler-sdk of 2024-10, counters/yaml/counter_defs.yaml, OccupancyPercent",
    "OccupancyPercent is relative to 32 wavefronts per compute unit on gfx90a and gfx942.",
)
_WAVES_CDNA4: Final = source(
    "output of rocprofv3 on an MI350X, agents[].max_waves_per_cu and cu_count",
    "The driver of a gfx950 reports 32 wavefronts per compute unit, and 256 compute units.",
)
# The vendor computes a peak from bus width and clock. We measured none of them, so each peak is a claim.
_CDNA1: Final = claim("AMD, CDNA 2 white paper, footnotes", "MI100: 4,096 bits at 2.4 Gbps.")
_CDNA2_ONE_DIE: Final = claim("AMD, CDNA 2 white paper, footnote MI200-42", "MI210: 4,096 bits at 3.2 Gbps.")
_CDNA2_TWO_DIES: Final = claim(
    "AMD, CDNA 2 white paper, footnotes", "MI250 and MI250X: 8,192 bits at 3.2 Gbps for two dies, half of it for one."
)
_CDNA3: Final = claim(
    "AMD, footnotes MI300-13 and MI300-14", "MI300X and MI300A: 8,192 bits at 5.2 Gbps; ROCm's pages round to 5.3 TB/s."
)
_MI325: Final = claim("AMD, footnote MI325-001A, as others quote it", "6 TB/s; we did not read the page itself.")
_CDNA4: Final = claim(
    "articles on the MI350 series (Boston Limited, 2025-08-14)", "HBM3E, 8 TB/s; we did not read AMD's own page."
)


# Dense peaks by type. Each equals compute units x boost clock x operations per clock, which a test computes again.
_TORCH: Final = source(
    "torch 2.13, torch/_inductor/analysis/device_info.py, _device_mapping",
    "TFLOP/s and bandwidth from the data sheets of MI210, MI300A, MI300X, MI350X, A100 and H100 (whose figures count "
    "sparsity, so half of them). For fp16 on MI350X it has 2,309.6; 256 units at 2.2 GHz give 2,306.9.",
)
_MI100_TFLOPS: Final = claim("notebookcheck.net, AMD announces Instinct MI100, 2020-11", "TFLOP/s by type, 1.23 TB/s.")
_MI250_TFLOPS: Final = claim(
    "hmc-tech.com, MI200 and MI250; reports of AMD's announcement of 2021-11 for MI250X",
    "fp16 362.1 and fp32 90.5 (MI250), 383 and 95.7 (MI250X) for two dies, half of it for one.",
)
_MI325_TFLOPS: Final = claim("docs.vultr.com, hardware requirements for vLLM on ROCm", "6 TB/s, 1,307 TFLOP/s fp16.")
_MI355_TFLOPS: Final = claim(
    "reports of AMD's ISSCC talk, 2026-02", "8,192 operations of fp8 per clock and compute unit, 5 PFLOP/s in total."
)
_RDNA: Final = claim(
    "hmc-tech.com, Radeon RX 9070 XT and RX 7900 XTX",
    "2.97 GHz, fp32 48.7, INT4 with sparsity 1,560, so fp16 194.6; 2.5 GHz, fp16 122.9. Memory: 20 Gbps on 256 and 384 bits.",
)
_V100: Final = claim("NVIDIA, V100 data sheet, as others quote it", "SXM2: 125 fp16, 15.7 fp32, 7.8 fp64, 900 GB/s.")
_SIZES: Final = claim("github.com/astroC86/gpu-datasheet", "A100 with 40 GB: 1.55 TB/s; H200: 141 GB, 4.8 TB/s.")
_HOPPER: Final = claim("glennklockwood.com, H100", "H100 SXM5: 132 SMs at 1.83 GHz, 989.4 fp16, 66.9 fp32 and fp64.")
_H100_PCIE: Final = claim(
    "hpctech.co.jp, NVIDIA H100", "H100 PCIe: 114 SMs, 2,000 GB/s, half of 1,513 fp16 and 3,026 fp8."
)
_BLACKWELL: Final = claim(
    "NVIDIA, Blackwell data sheet, as others quote it",
    "HGX B200: 180 GB, 7.7 TB/s, half of 4,500 fp16, 9,000 fp8, 18,000 fp4 and 2,200 tf32; 75 fp32, 37 fp64.",
)
_ADA: Final = claim(
    "data sheet of the L40S, as mullet.se quotes it; waredb.com, RTX 4090",
    "L40S: 864 GB/s, 362.05 fp16, 733 fp8. RTX 4090: 1,008 GB/s, 165.2 fp16 with sums in fp32, 330.3 fp8.",
)


def _peaks(
    name: str, arch: str, gb_per_s: float, units: int, waves: int, *evidence: Evidence, gb: int = 0, **tflops: float
) -> DevicePeaks:
    return DevicePeaks(
        name=name,
        arch=arch,
        memory_gb_per_s=gb_per_s,
        compute_units=units,
        waves_per_unit=waves,
        evidence=evidence,
        memory_gb=gb,
        tflops=tflops,
    )


_MI200: Final = {"fp16": 181.0, "bf16": 181.0, "int8": 181.0, "fp32": 45.3, "fp64": 45.3}
_MI250X: Final = {"fp16": 191.5, "bf16": 191.5, "int8": 191.5, "fp32": 47.9, "fp64": 47.9}
_MI300A: Final = {"fp16": 980.6, "bf16": 980.6, "fp8": 1961.2, "int8": 1961.2, "fp32": 122.6, "fp64": 122.6}
_MI300X: Final = {"fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9, "fp32": 163.4, "fp64": 163.4}
_MI350X: Final = {
    "fp16": 2306.9,
    "bf16": 2306.9,
    "fp8": 4613.7,
    "int8": 4613.7,
    "fp4": 9227.5,
    "fp32": 144.2,
    "fp64": 72.1,
}
_MI355X: Final = {
    "fp16": 2516.6,
    "bf16": 2516.6,
    "fp8": 5033.2,
    "int8": 5033.2,
    "fp4": 10066.3,
    "fp32": 157.3,
    "fp64": 78.6,
}
_A100: Final = {"fp16": 312.0, "bf16": 312.0, "tf32": 156.0, "int8": 624.0, "fp32": 19.5, "fp64": 19.5}
_H100: Final = {"fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9, "tf32": 494.7, "fp32": 66.9, "fp64": 66.9}
_B200: Final = {
    "fp16": 2250.0,
    "bf16": 2250.0,
    "fp8": 4500.0,
    "int8": 4500.0,
    "fp4": 9000.0,
    "tf32": 1100.0,
    "fp32": 75.0,
    "fp64": 37.0,
}
_H100_PCIE_TFLOPS: Final = {
    "fp16": 756.0,
    "bf16": 756.0,
    "fp8": 1513.0,
    "int8": 1513.0,
    "tf32": 378.0,
    "fp32": 51.2,
    "fp64": 51.2,
}
_L40S: Final = {"fp16": 362.05, "bf16": 362.05, "fp8": 733.0, "int8": 733.0, "tf32": 183.0, "fp32": 91.6}
_RTX4090: Final = {"fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6, "tf32": 82.6, "fp32": 82.6}
_MI100: Final = {"fp16": 184.6, "bf16": 92.3, "int8": 184.6, "fp32": 46.1, "fp64": 11.5}
DEVICE_PEAKS: Final = (
    _peaks("MI100", "gfx908", 1228.8, 120, 0, _CDNA1, _UNITS, _MI100_TFLOPS, gb=32, **_MI100),
    _peaks("MI210", "gfx90a", 1638.4, 104, 32, _CDNA2_ONE_DIE, _UNITS, _WAVES, _TORCH, gb=64, **_MI200),
    _peaks("MI250", "gfx90a", 1638.4, 104, 32, _CDNA2_TWO_DIES, _UNITS, _WAVES, _MI250_TFLOPS, gb=64, **_MI200),
    _peaks("MI250X", "gfx90a", 1638.4, 110, 32, _CDNA2_TWO_DIES, _UNITS, _WAVES, _MI250_TFLOPS, gb=64, **_MI250X),
    _peaks("MI300A", "gfx942", 5324.8, 228, 32, _CDNA3, _UNITS, _WAVES, _TORCH, gb=128, **_MI300A),
    _peaks("MI300X", "gfx942", 5324.8, 304, 32, _CDNA3, _UNITS, _WAVES, _TORCH, gb=192, **_MI300X),
    _peaks("MI325X", "gfx942", 6000.0, 304, 32, _MI325, _UNITS, _WAVES, _MI325_TFLOPS, gb=256, **_MI300X),
    _peaks("MI350X", "gfx950", 8000.0, 256, 32, _CDNA4, _UNITS, _WAVES_CDNA4, _TORCH, gb=288, **_MI350X),
    _peaks("MI355X", "gfx950", 8000.0, 256, 32, _CDNA4, _UNITS, _WAVES_CDNA4, _MI355_TFLOPS, gb=288, **_MI355X),
    _peaks("7900 XTX", "gfx1100", 960.0, 96, 0, _UNITS, _RDNA, gb=24, fp16=122.9, bf16=122.9, fp32=61.4),
    _peaks("9070 XT", "gfx1201", 640.0, 64, 0, _UNITS, _RDNA, gb=16, fp16=194.6, bf16=194.6, fp8=389.3, fp32=48.7),
    _peaks("V100", "sm_70", 900.0, 80, 0, _V100, fp16=125.0, fp32=15.7, fp64=7.8),
    _peaks("A100", "sm_80", 2039.0, 108, 0, _TORCH, gb=80, **_A100),
    _peaks("A100 40GB", "sm_80", 1555.0, 108, 0, _TORCH, _SIZES, gb=40, **_A100),
    _peaks("H100", "sm_90", 3352.0, 132, 0, _TORCH, _HOPPER, gb=80, **_H100),
    _peaks("H100 PCIe", "sm_90", 2000.0, 114, 0, _H100_PCIE, gb=80, **_H100_PCIE_TFLOPS),
    _peaks("H200", "sm_90", 4800.0, 132, 0, _HOPPER, _SIZES, gb=141, **_H100),
    _peaks("B200", "sm_100", 7700.0, 148, 0, _BLACKWELL, gb=180, **_B200),
    _peaks("L40S", "sm_89", 864.0, 142, 0, _ADA, gb=48, **_L40S),
    _peaks("4090", "sm_89", 1008.0, 128, 0, _ADA, gb=24, **_RTX4090),
)
_BY_NAME: Final = {peaks.name: peaks for peaks in DEVICE_PEAKS}


def find_peaks(device: str) -> DevicePeaks | None:
    """Return the peaks of a device by its name, such as "AMD Instinct MI300X"; None if it is not listed.

    Drivers name some devices after two models, such as "MI250X/MI250". If the models have different numbers of compute
    units, `compute_units` is 0; if they differ in anything else, the result is None.
    """
    named_models = _MODEL_NAME.findall(device)
    models = [_BY_NAME[name] for name in named_models if name in _BY_NAME]
    if not models or len(models) < len(named_models):
        return None
    first = models[0]
    if any((m.memory_gb_per_s, m.waves_per_unit) != (first.memory_gb_per_s, first.waves_per_unit) for m in models):
        return None
    same_units = len({peaks.compute_units for peaks in models}) == 1
    return first if same_units else replace(first, compute_units=0)


def infer_peaks(device: str, *, compute_units: int = 0, memory_bytes: int = 0) -> DevicePeaks | None:
    """Return the peaks of a device by its name, or else by its compute units and memory, as a driver reports them.

    Drivers reserve up to a tenth of the memory, and some containers hide the name.
    """
    named = find_peaks(device)
    variants = [c for c in DEVICE_PEAKS if named and c.name.split()[0] == named.name.split()[0]]
    if not named:
        if _MODEL_NAME.search(device) or not compute_units or not memory_bytes:
            return None  # a model that is not listed, or nothing to go by
        variants = [c for c in DEVICE_PEAKS if c.compute_units == compute_units]
    fitting = [
        c
        for c in variants
        if (not memory_bytes or not c.memory_gb or 0.85 <= memory_bytes / (c.memory_gb * 2**30) <= 1.05)  # noqa: PLR2004
        and (not compute_units or not c.compute_units or c.compute_units == compute_units)
    ]
    if named:
        return fitting[0] if fitting else named
    if len({c.memory_gb_per_s for c in fitting}) != 1:
        return None
    # Models that differ only in their clocks, such as MI350X and MI355X: the lower peaks are those of both.
    lowest = {kind: min(c.tflops.get(kind, 0.0) for c in fitting) for kind in fitting[0].tflops}
    return replace(fitting[0], name=" or ".join(c.name for c in fitting), tflops=lowest)
