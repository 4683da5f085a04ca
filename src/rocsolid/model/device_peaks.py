"""The peaks and the size of GPUs, and the meaning of their hardware counters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class DevicePeaks:
    """The peaks and the number of compute units of one device as programs see it: a card with two dies is two devices."""

    name: str  # the model name that appears in the device's name, such as MI300X
    arch: str
    memory_gb_per_s: float  # peak bandwidth of its own memory, in 10^9 bytes per second
    compute_units: int  # 0 where the device's name fits two models with different numbers of units
    waves_per_unit: int  # wavefronts that one compute unit can hold; 0 where unknown
    evidence: tuple[Evidence, ...]
    memory_gb: int = (
        0  # its size, to tell models with the same name or number of compute units apart; 0 where it does not matter
    )
    # Dense peak of matrix units (of vector units for fp32 on NVIDIA) in 10^12 operations per second, by type.
    tflops: Mapping[str, float] = field(default_factory=dict)


class CounterMetric(Enum):
    """The metric that a hardware counter contributes to."""

    OCCUPANCY = "occupancy"  # share of the wavefronts that the GPU can hold
    WAVES = "waves"  # wavefronts per compute unit
    L2_HIT = "l2-hit"  # share of L2 requests that hit
    L2_HITS = "l2-hits"  # number of L2 requests that hit
    L2_MISSES = "l2-misses"  # number of L2 requests that missed
    READ = "read"  # bytes read from memory
    WRITTEN = "written"  # bytes written to memory


@dataclass(frozen=True, kw_only=True)
class HardwareCounter:
    """A counter of rocprofv3. Its value times `scale` is the metric, or one summand of the metric."""

    counter: str  # its name in rocprofv3
    metric: CounterMetric
    scale: float
    evidence: tuple[Evidence, ...]
