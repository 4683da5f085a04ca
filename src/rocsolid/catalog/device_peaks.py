"""Peak bandwidth, compute units and wavefronts of AMD GPUs, with their sources. The peaks of other GPUs are unknown."""

import re
from dataclasses import replace
from typing import Final

from rocsolid.model.device_peaks import DevicePeaks
from rocsolid.model.evidence import Evidence, claim, source

_MODEL_NAME: Final = re.compile(r"\bMI\d{2,3}[AX]?\b")
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


def _peaks(name: str, arch: str, gb_per_s: float, units: int, waves: int, *evidence: Evidence) -> DevicePeaks:
    return DevicePeaks(
        name=name, arch=arch, memory_gb_per_s=gb_per_s, compute_units=units, waves_per_unit=waves, evidence=evidence
    )


DEVICE_PEAKS: Final = (
    _peaks("MI100", "gfx908", 1228.8, 120, 0, _CDNA1, _UNITS),
    _peaks("MI210", "gfx90a", 1638.4, 104, 32, _CDNA2_ONE_DIE, _UNITS, _WAVES),
    _peaks("MI250", "gfx90a", 1638.4, 104, 32, _CDNA2_TWO_DIES, _UNITS, _WAVES),
    _peaks("MI250X", "gfx90a", 1638.4, 110, 32, _CDNA2_TWO_DIES, _UNITS, _WAVES),
    _peaks("MI300A", "gfx942", 5324.8, 228, 32, _CDNA3, _UNITS, _WAVES),
    _peaks("MI300X", "gfx942", 5324.8, 304, 32, _CDNA3, _UNITS, _WAVES),
    _peaks("MI325X", "gfx942", 6000.0, 304, 32, _MI325, _UNITS, _WAVES),
    _peaks("MI350X", "gfx950", 8000.0, 256, 32, _CDNA4, _UNITS, _WAVES_CDNA4),
    _peaks("MI355X", "gfx950", 8000.0, 256, 32, _CDNA4, _UNITS, _WAVES_CDNA4),
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
