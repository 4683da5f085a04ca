"""A race between processes: rounds in random order, fresh processes every few rounds, and elimination of what is clearly slower.

Two processes that run the same program differ by a per cent or more for as long as they live. So each process is restarted every
few rounds. A control, which runs the same as the first process, shows how much equal processes differ.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Protocol

from rocsolid.measure.statistics import compare, error_of_mean, paired_center, summarize_samples
from rocsolid.model.timing import SpeedComparison, Timing

_MAX_ROUND_S: Final = 0.5  # a round of several turns ends after this time, if one turn of each was shorter
_FIRST_CHECK, _CHECK_EVERY = 8, 4  # rounds before the first elimination, and between eliminations
_ELIMINATION_Z: Final = 2.6  # standard errors; several checks need a wider margin than 1.96 for a single one
_EQUAL: Final = 0.005  # processes this close to the fastest are not worth more rounds
# Restarts of the control. With fewer, two processes that happen to be alike look like a quiet machine.
_MIN_CONTROL_PROCESSES: Final = 3


class TimedProcess(Protocol):
    """A process that can be timed repeatedly."""

    def ready(self) -> bool:
        """Wait until it can be timed; False when it has ended."""
        ...

    def sample(self) -> float | None:
        """One sample in milliseconds; None when the process has ended."""
        ...

    def restart(self) -> None:
        """Replace it by a fresh process that runs the same."""
        ...


@dataclass(frozen=True, kw_only=True)
class ProcessRaceResult:
    """The samples of a race by name. The tuple of an eliminated process ends with its last round."""

    samples_ms: Mapping[str, tuple[float, ...]]
    control_ms: tuple[float, ...]
    baseline: str
    fastest: str
    rounds_per_process: int = 8
    clock: str = "host"

    def timing(self, name: str) -> Timing:
        """The time of one process."""
        return summarize_samples(self.samples_ms[name], self.clock)

    def compare(self, baseline: str, name: str, min_gain: float = 0.02) -> SpeedComparison:
        """Compare two processes over the rounds that both ran."""
        ours, theirs = self.samples_ms[baseline], self.samples_ms[name]
        rounds = min(len(ours), len(theirs))
        noise = self._noise(math.ceil(rounds / self.rounds_per_process))
        return compare(ours[:rounds], theirs[:rounds], min_gain=min_gain, noise=noise)

    @property
    def noise(self) -> float:
        """How much the baseline and its control differ, as a ratio: 0.02 is two per cent."""
        return self._noise(0)

    def _noise(self, processes: int) -> float:
        """How far apart two equal variants may be that had `processes` processes each; 0 means as many as the control had."""
        own = self.samples_ms.get(self.baseline, ())
        rounds = min(len(own), len(self.control_ms))
        if not rounds:
            return 0.0
        differences = [math.log(a / b) for a, b in zip(own[:rounds], self.control_ms[:rounds], strict=True)]
        _, low, high = paired_center(differences)
        # The rounds of one process share its offset, so the processes are the independent repetitions. Their true difference is 0.
        step = self.rounds_per_process
        groups = [differences[at : at + step] for at in range(0, rounds, step)]
        offsets = [median(group) for group in groups if 2 * len(group) >= min(step, rounds)]
        return math.expm1(max(error_of_mean(offsets, processes), (high - low) / 2))

    def extended_by(self, later: "ProcessRaceResult") -> "ProcessRaceResult":
        """One result from this race and a later one between fresh processes of the same variants."""
        samples = {name: taken + later.samples_ms.get(name, ()) for name, taken in self.samples_ms.items()}
        return replace(later, samples_ms=samples, control_ms=self.control_ms + later.control_ms)


@dataclass(frozen=True, kw_only=True)
class RaceOptions:
    """How long a race runs."""

    rounds: int = 60
    restart_every: int = 8  # rounds
    budget_s: float = 300.0
    turns: int = 1  # of each process in a round
    eliminate: bool = True  # False: all run to the end, as in an A/B test
    seed: int = 0


def race_processes(
    processes: Mapping[str, TimedProcess],
    control: TimedProcess | None = None,
    options: RaceOptions = RaceOptions(),  # noqa: B008 - frozen
    on_round: Callable[[int, Sequence[str]], None] = lambda *_: None,
) -> ProcessRaceResult:
    """Race the processes; the first one is the baseline. `on_round` gets the round number and the names still in the race."""
    baseline, *_ = processes
    order = random.Random(options.seed)  # noqa: S311 - an order, no secret
    samples: dict[str, list[float]] = {name: [] for name in processes}
    control_ms: list[float] = []
    running = list(processes)
    started = time.monotonic()
    for number in range(options.rounds):
        if number >= _FIRST_CHECK and time.monotonic() - started > options.budget_s:
            break
        with_control = [control] if control and baseline in running else []
        if number % options.restart_every == 0:
            _prepare([processes[name] for name in running] + with_control, restart=number > 0)
        on_round(number, running)
        timed = {name: processes[name] for name in running} | ({"": with_control[0]} if with_control else {})
        for name, taken in _run_round(timed, order, options.turns).items():
            (samples[name] if name else control_ms).append(taken)
        running = [name for name in running if len(samples[name]) == number + 1]  # the others have ended
        if len(control_ms) <= number:
            control = None
        if not running or (not options.eliminate and len(running) < len(processes)):  # an A/B test needs both
            break
        if options.eliminate and number + 1 >= _FIRST_CHECK and (number + 1) % _CHECK_EVERY == 0:
            too_few = number + 1 < _MIN_CONTROL_PROCESSES * options.restart_every
            keep_baseline = control is not None and baseline in running and too_few
            running, decided = _eliminate(running, samples, keep=baseline if keep_baseline else "")
            if decided and not keep_baseline:
                break
    return ProcessRaceResult(
        samples_ms={name: tuple(taken) for name, taken in samples.items() if taken},
        control_ms=tuple(control_ms),
        baseline=baseline,
        fastest=_fastest(running, samples) if running else "",
        rounds_per_process=options.restart_every,
    )


def _prepare(processes: Sequence[TimedProcess], *, restart: bool) -> None:
    """Wait for all of them before any is timed: one that still compiles would slow down the others."""
    if restart:
        for process in processes:
            process.restart()
    for process in processes:
        process.ready()


def _run_round(processes: Mapping[str, TimedProcess], order: random.Random, turns: int) -> dict[str, float]:
    """One value for each process that has not ended, from a few turns that all took within the same stretch of time."""
    taken: dict[str, list[float]] = {name: [] for name in processes}
    started = time.monotonic()
    for _ in range(turns):
        names = list(taken)
        order.shuffle(names)
        for name in names:
            sample = processes[name].sample()
            if sample is None or sample <= 0:
                del taken[name]
            else:
                taken[name].append(math.log(sample))
        if time.monotonic() - started > _MAX_ROUND_S:
            break
    # Whatever slows the machine down slows all processes in the same turn. So each sample is compared with the average of its
    # turn, and the fastest turn sets the level.
    averages = [sum(turn) / len(turn) for turn in zip(*taken.values(), strict=True)]
    return {
        name: math.exp(min(averages) + median(log - average for log, average in zip(logs, averages, strict=True)))
        for name, logs in taken.items()
    }


def _eliminate(running: list[str], samples: Mapping[str, Sequence[float]], keep: str) -> tuple[list[str], bool]:
    """The names that stay, `keep` always among them, and whether the race is decided."""
    fastest = _fastest(running, samples)
    stay, undecided = [], False
    for name in running:
        if name == fastest:
            stay.append(name)
            continue
        behind = [math.log(a / b) for a, b in zip(samples[name], samples[fastest], strict=True)]
        _, low, high = paired_center(behind, deviations=_ELIMINATION_Z)
        if low > 0 and name != keep:
            continue
        stay.append(name)
        undecided |= not (low > -_EQUAL and high < _EQUAL)
    return stay, not undecided


def _fastest(running: Sequence[str], samples: Mapping[str, Sequence[float]]) -> str:
    """The name with the lowest median time, where each sample is taken relative to the median of its round."""
    rounds = min(len(samples[name]) for name in running)
    middles = [median(math.log(samples[name][r]) for name in running) for r in range(rounds)]
    return min(running, key=lambda name: median(math.log(samples[name][r]) - middles[r] for r in range(rounds)))
