"""Compare the speed of several callables in interleaved rounds.

In each round, all callables run in a new random order. The first one, the baseline, runs twice; its second run is the control. The
speed of a machine changes from minute to minute. Interleaved rounds make all callables run under the same conditions.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocsolid.measure.clock import calls_per_sample, select_clock
from rocsolid.measure.statistics import compare, summarize_samples
from rocsolid.model.timing import SpeedComparison, Timing

_MIN_ROUNDS: Final = 3
_CONTROL: Final = ""  # the key of the control's samples


@dataclass(frozen=True, kw_only=True)
class Race:
    """The samples of each callable by name, one per round."""

    samples_ms: Mapping[str, tuple[float, ...]]
    control_ms: tuple[float, ...]
    baseline: str
    clock: str

    def timing(self, name: str) -> Timing:
        """Return the time of one callable."""
        return summarize_samples(self.samples_ms[name], self.clock)

    def against_baseline(self, name: str, min_gain: float = 0.02) -> SpeedComparison:
        """Compare one callable with the baseline."""
        return compare(
            self.samples_ms[self.baseline],
            self.samples_ms[name],
            control_ms=self.control_ms,
            min_gain=min_gain,
        )

    @property
    def noise(self) -> float:
        """How much the baseline and its control differ, as a ratio: 0.02 is two per cent."""
        return self.against_baseline(self.baseline).noise


def race(
    callables: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 12,
    budget_s: float = 20.0,
    warmups: int = 3,
    seed: int = 0,
    on_round: Callable[[int, Mapping[str, Sequence[float]]], None] = lambda *_: None,
) -> Race:
    """Time the callables; the first one is the baseline.

    The race ends early when the budget is used up, but not before three rounds. On a GPU the time is taken with GPU events.
    `on_round` is called before each round, with its index and the samples so far.
    """
    baseline = next(iter(callables))
    clock = select_clock()
    calls = {name: calls_per_sample(call, warmups) for name, call in callables.items()}
    # The key under which samples are stored, and the callable that is timed.
    runs = [*((name, name) for name in callables), (_CONTROL, baseline)]
    samples: dict[str, list[float]] = {key: [] for key, _ in runs}
    rng = random.Random(seed)  # noqa: S311 - not used for security
    started = time.perf_counter()
    for index in range(rounds):
        if index >= _MIN_ROUNDS and time.perf_counter() - started > budget_s:
            break
        on_round(index, samples)
        rng.shuffle(runs)
        for key, name in runs:
            samples[key].append(clock.sample(callables[name], calls[name]))
    control = tuple(samples.pop(_CONTROL))
    return Race(
        samples_ms={name: tuple(samples[name]) for name in callables},
        control_ms=control,
        baseline=baseline,
        clock=clock.name,
    )
