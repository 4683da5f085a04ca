"""What a card can do at most, and what its counters mean."""

from dataclasses import dataclass
from enum import Enum

from rocsolid.model.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Card:
    """One device as a program sees it: of a card with two dies, one die."""

    name: str  # the word that tells it in the name of a device
    arch: str
    memory_gb_per_s: float  # peak of its own memory, in units of 10^9 bytes
    compute_units: int  # 0 where the name does not tell which of two it is
    waves_per_unit: int  # wavefronts that a compute unit can hold; 0 where nobody told us
    evidence: tuple[Evidence, ...]


class Figure(Enum):
    """What a hardware counter contributes to."""

    OCCUPANCY = "occupancy"  # share of the wavefronts that the chip can hold
    WAVES = "waves"  # wavefronts that a compute unit held
    L2_HIT = "l2-hit"  # share of requests
    L2_HITS = "l2-hits"
    L2_MISSES = "l2-misses"
    READ = "read"  # bytes from memory
    WRITTEN = "written"  # bytes to memory


@dataclass(frozen=True, kw_only=True)
class Meter:
    """A counter of rocprofv3: its value times `scale` is the figure, or a part of it."""

    counter: str
    figure: Figure
    scale: float
    evidence: tuple[Evidence, ...]
