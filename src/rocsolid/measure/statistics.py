"""Medians with intervals, and ratios of paired rounds: no assumption about how noise is distributed."""

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement
from statistics import median

from rocsolid.model.timing import Comparison, Timing, Verdict

_Z = 1.96  # 95 %
# Student's factor for 95 %, by how many there are.
_STUDENT = {
    1: 12.71,
    2: 4.30,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    10: 2.23,
    11: 2.20,
    12: 2.18,
}
_MOST_PAIRS = 200  # rounds beyond this add nothing that the pairs of these do not show


def timing_of(samples_ms: Sequence[float], clock: str = "host") -> Timing:
    """The median, with the interval that order statistics give."""
    ordered = sorted(samples_ms)
    count = len(ordered)
    reach = _Z * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Timing(median_ms=median(ordered), low_ms=ordered[low], high_ms=ordered[high], samples=count, clock=clock)


def centre_of(differences: Sequence[float], deviations: float = _Z) -> tuple[float, float, float]:
    """The centre of paired differences and its interval, from the averages of all pairs (Hodges and Lehmann)."""
    kept = list(differences)[:_MOST_PAIRS]
    count = len(kept)
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(kept, 2))
    spread = deviations * math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    cut = max(0, min(int(count * (count + 1) / 4 - spread), (len(averages) - 1) // 2))
    return median(averages), averages[cut], averages[-1 - cut]


def error_of_mean(differences: Sequence[float], others: int = 0) -> float:
    """By differences that truly are nought, how far from it the mean of others lies in 95 of 100 cases; 0: of as many."""
    count = len(differences)
    if not count:
        return 0.0
    spread = math.sqrt(sum(d * d for d in differences) / count)
    return _STUDENT.get(count, _STUDENT[max(_STUDENT)]) * spread / math.sqrt(others or count)


def compare(
    baseline_ms: Sequence[float],
    other_ms: Sequence[float],
    *,
    control_ms: Sequence[float] | None = None,
    noise: float = 0.0,
    least_gain: float = 0.02,
) -> Comparison:
    """Compare what was measured side by side, round by round.

    `control_ms` is the baseline measured once more as if it were another thing; how far it seems to be from itself widens
    the interval; where that is known already it is given as `noise`. A difference below `least_gain` counts as none.
    """
    centre, low, high = centre_of([math.log(a / b) for a, b in zip(baseline_ms, other_ms, strict=True)])
    off_itself = math.log1p(noise)
    if control_ms is not None:
        off, down, up = centre_of([math.log(a / b) for a, b in zip(baseline_ms, control_ms, strict=True)])
        off_itself = max(abs(off), (up - down) / 2)
    low, high = min(low, centre - off_itself), max(high, centre + off_itself)
    return Comparison(
        speedup=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        verdict=_verdict(low, high, math.log1p(least_gain)),
        noise=math.expm1(off_itself),
    )


def _verdict(low: float, high: float, least: float) -> Verdict:
    if low > least or (low > 0 and (low + high) / 2 > least):
        return Verdict.FASTER
    if high < -least or (high < 0 and (low + high) / 2 < -least):
        return Verdict.SLOWER
    return Verdict.SAME if -2 * least < low and high < 2 * least else Verdict.UNSURE
