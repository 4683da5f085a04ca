"""Peak figures of GPUs, and what their hardware counters mean."""

from dataclasses import dataclass
from enum import Enum

from rocsolid.model.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class DevicePeaks:
    """The peak figures of one device as a program sees it; a card with two dies is two devices."""

    name: str  # the model name that appears in the device's name, such as MI300X
    arch: str
    memory_gb_per_s: float  # peak bandwidth of its own memory, in 10^9 bytes per second
    compute_units: int  # 0 where the device's name fits two models that differ
    waves_per_unit: int  # wavefronts that one compute unit can hold; 0 where unknown
    evidence: tuple[Evidence, ...]


class CounterMetric(Enum):
    """The metric that a hardware counter contributes to."""

    OCCUPANCY = "occupancy"  # share of the wavefronts that the GPU can hold
    WAVES = "waves"  # wavefronts per compute unit
    L2_HIT = "l2-hit"  # share of L2 requests that hit
    L2_HITS = "l2-hits"
    L2_MISSES = "l2-misses"
    READ = "read"  # bytes from memory
    WRITTEN = "written"  # bytes to memory


@dataclass(frozen=True, kw_only=True)
class HardwareCounter:
    """A counter of rocprofv3. Its value times `scale` is the metric, or a part of it."""

    counter: str
    metric: CounterMetric
    scale: float
    evidence: tuple[Evidence, ...]
