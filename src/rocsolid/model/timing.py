"""Measured times and comparisons of two times, with sample size and confidence interval."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The outcome of a comparison."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # any difference is too small to matter
    UNSURE = "unsure"  # the noise is too large to decide


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A median time with its 95 % confidence interval."""

    median_ms: float
    low_ms: float
    high_ms: float
    samples: int
    clock: str = "host"  # or "device"

    def __str__(self) -> str:
        return f"{_ms(self.median_ms)} [{_ms(self.low_ms)}, {_ms(self.high_ms)}]"


@dataclass(frozen=True, kw_only=True)
class SpeedComparison:
    """How many times as fast something is as a baseline, and whether the difference is larger than the noise."""

    speedup: float
    low: float  # of the 95 % confidence interval
    high: float
    verdict: Verdict
    noise: float = 0.0  # how much two identical runs differ, as a ratio: 0.02 is two per cent

    def __str__(self) -> str:
        return f"{self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}], {self.verdict.value}"


def _ms(value: float) -> str:
    if value < 1:
        return f"{value * 1e3:.1f} µs"
    return f"{value:.3g} ms" if value < 1e3 else f"{value / 1e3:.3g} s"  # noqa: PLR2004 - units
