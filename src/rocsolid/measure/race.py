"""Times several callables side by side: in rounds, each round in another order, with one of them run twice as a control.

What runs one after the other is compared with the machine's mood of that minute. What takes turns is not.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rocsolid.measure.statistics import compare, timing_of
from rocsolid.model.timing import Comparison, Timing

_LONG_MS = 1.0  # a sample shorter than this is made of several calls
_MOST_CALLS = 200


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
    clock = _device_sample if _on_device() else _host_sample
    calls = {name: _calls_per_sample(call, warmups) for name, call in candidates.items()}
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
            samples[key].append(clock(candidates[name], calls[name]))
    control = tuple(samples.pop(""))
    return Race(
        samples_ms={name: tuple(samples[name]) for name in candidates},
        control_ms=control,
        baseline=baseline,
        clock="device" if clock is _device_sample else "host",
    )


def _calls_per_sample(call: Callable[[], Any], warmups: int) -> int:
    for _ in range(max(1, warmups)):
        call()
    spent = min(_host_sample(call, 1) for _ in range(2))
    return max(1, min(_MOST_CALLS, int(_LONG_MS / max(spent, 1e-6))))


def _on_device() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _host_sample(call: Callable[[], Any], times: int) -> float:
    if _on_device():
        import torch

        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        call()
    if _on_device():
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e3 / times


def _device_sample(call: Callable[[], Any], times: int) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / times
