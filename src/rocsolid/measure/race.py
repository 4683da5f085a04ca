"""Times several callables side by side: in rounds, each round in another order, with one of them run twice as a control.

What runs one after the other is compared with the machine's mood of that minute. What takes turns is not.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rocsolid.measure.clock import calls_per_sample, clock_here
from rocsolid.measure.statistics import compare, timing_of
from rocsolid.model.timing import Comparison, Timing


@dataclass(frozen=True, kw_only=True)
class Race:
    """What was measured, by name; each list has one entry a round."""

    samples_ms: Mapping[str, tuple[float, ...]]
    control_ms: tuple[float, ...]
    baseline: str
    clock: str

    def timing(self, name: str) -> Timing:
        """One of them by itself."""
        return timing_of(self.samples_ms[name], self.clock)

    def against_baseline(self, name: str, least_gain: float = 0.02) -> Comparison:
        """One of them beside the baseline."""
        return compare(
            self.samples_ms[self.baseline],
            self.samples_ms[name],
            control_ms=self.control_ms,
            least_gain=least_gain,
        )

    @property
    def noise(self) -> float:
        """How far the baseline seemed to be from itself."""
        return self.against_baseline(self.baseline).noise


def race(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 12,
    budget_s: float = 20.0,
    warmups: int = 3,
    seed: int = 0,
) -> Race:
    """Time the candidates, the first of which is the baseline.

    Rounds end early when the budget is spent, but not before three of them. A device is timed by its own clock.
    """
    baseline = next(iter(candidates))
    clock = clock_here()
    calls = {name: calls_per_sample(call, warmups) for name, call in candidates.items()}
    entrants = [*((name, name) for name in candidates), ("", baseline)]  # the baseline runs twice
    samples: dict[str, list[float]] = {key: [] for key, _ in entrants}
    order = random.Random(seed)  # noqa: S311 - an order, no secret
    least = 3
    begun = time.perf_counter()
    for number in range(rounds):
        if number >= least and time.perf_counter() - begun > budget_s:
            break
        order.shuffle(entrants)
        for key, name in entrants:
            samples[key].append(clock.sample(candidates[name], calls[name]))
    control = tuple(samples.pop(""))
    return Race(
        samples_ms={name: tuple(samples[name]) for name in candidates},
        control_ms=control,
        baseline=baseline,
        clock=clock.name,
    )
