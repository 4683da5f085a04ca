"""Medians and comparisons with confidence intervals, without assumptions about the distribution of the noise."""

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement
from statistics import median

from rocsolid.model.timing import SpeedComparison, Timing, Verdict

_Z = 1.96  # standard deviations of a 95 % interval
# Student's t factor for 95 %, by the number of differences.
_STUDENT_T = {
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
_MAX_ROUNDS = 200  # more rounds are not used: the number of pairs grows with the square


def summarize_samples(samples_ms: Sequence[float], clock: str = "host") -> Timing:
    """Return the median, with its 95 % interval from order statistics."""
    ordered = sorted(samples_ms)
    count = len(ordered)
    half_width = _Z * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half_width) - 1)
    high = min(count - 1, math.ceil(count / 2 + half_width))
    return Timing(median_ms=median(ordered), low_ms=ordered[low], high_ms=ordered[high], samples=count, clock=clock)


def paired_center(differences: Sequence[float], deviations: float = _Z) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate of paired differences with its interval: (center, low, high).

    The estimate is the median of the averages of all pairs; `deviations` is the width of the interval in standard deviations.
    """
    used = list(differences)[:_MAX_ROUNDS]
    count = len(used)
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(used, 2))
    spread = deviations * math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    cut = max(0, min(int(count * (count + 1) / 4 - spread), (len(averages) - 1) // 2))
    return median(averages), averages[cut], averages[-1 - cut]


def error_of_mean(differences: Sequence[float], mean_of: int = 0) -> float:
    """Return the 95 % error of a mean of `mean_of` differences, estimated from differences whose true value is 0.

    `mean_of=0` means the mean of as many differences as are given here.
    """
    count = len(differences)
    if not count:
        return 0.0
    spread = math.sqrt(sum(d * d for d in differences) / count)
    return _STUDENT_T.get(count, _STUDENT_T[max(_STUDENT_T)]) * spread / math.sqrt(mean_of or count)


def compare(
    baseline_ms: Sequence[float],
    other_ms: Sequence[float],
    *,
    control_ms: Sequence[float] | None = None,
    noise: float = 0.0,
    min_gain: float = 0.02,
) -> SpeedComparison:
    """Compare two measurements, round by round.

    `control_ms` is the baseline measured a second time. The difference between the two is the noise, which widens the interval.
    If the noise is already known, pass it as `noise`. A difference below `min_gain` counts as none.
    """
    center, low, high = paired_center([math.log(a / b) for a, b in zip(baseline_ms, other_ms, strict=True)])
    log_noise = math.log1p(noise)
    if control_ms is not None:
        control_center, control_low, control_high = paired_center(
            [math.log(a / b) for a, b in zip(baseline_ms, control_ms, strict=True)]
        )
        log_noise = max(abs(control_center), (control_high - control_low) / 2)
    low, high = min(low, center - log_noise), max(high, center + log_noise)
    return SpeedComparison(
        speedup=math.exp(center),
        low=math.exp(low),
        high=math.exp(high),
        verdict=_verdict(low, high, math.log1p(min_gain)),
        noise=math.expm1(log_noise),
    )


def _verdict(low: float, high: float, min_gain: float) -> Verdict:
    """Return the verdict on an interval of logarithms of speedups."""
    if low > min_gain or (low > 0 and (low + high) / 2 > min_gain):
        return Verdict.FASTER
    if high < -min_gain or (high < 0 and (low + high) / 2 < -min_gain):
        return Verdict.SLOWER
    return Verdict.SAME if -2 * min_gain < low and high < 2 * min_gain else Verdict.UNSURE
