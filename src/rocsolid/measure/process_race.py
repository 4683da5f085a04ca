"""Compare the speed of several processes in a race: they take turns in rounds, and those that are clearly slower are eliminated.

Two processes that run the same program may differ by a per cent or more until they end. So each process is replaced by a fresh one
every few rounds. A control, which runs the same program as the first process, shows how much identical processes differ.
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

_MAX_ROUND_S: Final = 0.5  # after this time a round has no further turns
_FIRST_CHECK, _CHECK_EVERY = 8, 4  # rounds before the first elimination, and rounds between eliminations
_ELIMINATION_Z: Final = 2.6  # standard errors; with several checks, the 1.96 of a single check would be too few
_EQUAL_RATIO: Final = 0.005  # processes that differ by less from the fastest are not worth more rounds
# With fewer processes of the control, the noise is underestimated if two processes happen to have the same speed.
_MIN_CONTROL_PROCESSES: Final = 3
_CONTROL: Final = ""  # the name of the control in a round


class TimedProcess(Protocol):
    """A process that can be timed repeatedly."""

    def ready(self) -> bool:
        """Wait until it can be timed; returns False when it has ended."""
        ...

    def sample(self) -> float | None:
        """Take one sample, in milliseconds; None when the process has ended."""
        ...

    def restart(self) -> None:
        """Replace it by a fresh process that runs the same program."""
        ...


@dataclass(frozen=True, kw_only=True)
class ProcessRaceResult:
    """The samples of each process by name, one per round. An eliminated process has fewer samples than the others."""

    samples_ms: Mapping[str, tuple[float, ...]]
    control_ms: tuple[float, ...]
    baseline: str
    fastest: str
    rounds_per_process: int = 8
    clock: str = "host"

    def timing(self, name: str) -> Timing:
        """Return the time of one process."""
        return summarize_samples(self.samples_ms[name], self.clock)

    def compare(self, baseline: str, name: str, min_gain: float = 0.02) -> SpeedComparison:
        """Compare two processes over the rounds that both ran."""
        baseline_ms, other_ms = self.samples_ms[baseline], self.samples_ms[name]
        rounds = min(len(baseline_ms), len(other_ms))
        noise = self._noise(math.ceil(rounds / self.rounds_per_process))
        return compare(baseline_ms[:rounds], other_ms[:rounds], min_gain=min_gain, noise=noise)

    @property
    def noise(self) -> float:
        """How much the baseline and its control differ, as a ratio: 0.02 is two per cent."""
        return self._noise(0)

    def _noise(self, processes: int) -> float:
        """Return how much two identical variants with `processes` processes each may differ; 0 means as many as the control had."""
        baseline_ms = self.samples_ms.get(self.baseline, ())
        rounds = min(len(baseline_ms), len(self.control_ms))
        if not rounds:
            return 0.0
        differences = [math.log(a / b) for a, b in zip(baseline_ms[:rounds], self.control_ms[:rounds], strict=True)]
        _, low, high = paired_center(differences)
        # All rounds of one process are shifted by the same offset, so processes and not rounds are the independent repetitions. The
        # true difference is 0.
        step = self.rounds_per_process
        groups = [differences[first : first + step] for first in range(0, rounds, step)]
        offsets = [median(group) for group in groups if 2 * len(group) >= min(step, rounds)]
        return math.expm1(max(error_of_mean(offsets, processes), (high - low) / 2))

    def extended_by(self, later: "ProcessRaceResult") -> "ProcessRaceResult":
        """Return the combined result of this race and a later one between fresh processes of the same variants."""
        samples = {name: earlier + later.samples_ms.get(name, ()) for name, earlier in self.samples_ms.items()}
        return replace(later, samples_ms=samples, control_ms=self.control_ms + later.control_ms)


@dataclass(frozen=True, kw_only=True)
class RaceOptions:
    """How long a race runs."""

    rounds: int = 60
    restart_every: int = 8  # rounds after which each process is replaced by a fresh one
    budget_s: float = 300.0
    turns: int = 1  # how often each process is timed in a round
    eliminate: bool = True  # False: all processes run to the end, as in an A/B test
    seed: int = 0


def race_processes(
    processes: Mapping[str, TimedProcess],
    control: TimedProcess | None = None,
    options: RaceOptions = RaceOptions(),
    on_round: Callable[[int, Mapping[str, Sequence[float]]], None] = lambda *_: None,
) -> ProcessRaceResult:
    """Race the processes; the first one is the baseline.

    `on_round` is called before each round, with its index and the samples so far of the processes that are still in the race.
    """
    baseline, *_ = processes
    rng = random.Random(options.seed)  # noqa: S311 - not used for security
    samples: dict[str, list[float]] = {name: [] for name in processes}
    control_ms: list[float] = []
    running = list(processes)
    started = time.monotonic()
    for index in range(options.rounds):
        if index >= _FIRST_CHECK and time.monotonic() - started > options.budget_s:
            break
        with_control = [control] if control and baseline in running else []
        if index % options.restart_every == 0:
            _prepare([processes[name] for name in running] + with_control, restart=index > 0)
        on_round(index, {name: samples[name] for name in running})
        timed = {name: processes[name] for name in running} | ({_CONTROL: with_control[0]} if with_control else {})
        for name, sample_ms in _run_round(timed, rng, options.turns).items():
            (control_ms if name == _CONTROL else samples[name]).append(sample_ms)
        running = [name for name in running if len(samples[name]) == index + 1]  # the others have ended
        if len(control_ms) <= index:
            control = None
        if not running or (not options.eliminate and len(running) < len(processes)):  # an A/B test needs both sides
            break
        if options.eliminate and index + 1 >= _FIRST_CHECK and (index + 1) % _CHECK_EVERY == 0:
            too_few = index + 1 < _MIN_CONTROL_PROCESSES * options.restart_every
            keep_baseline = control is not None and baseline in running and too_few
            running, decided = _eliminate(running, samples, keep=baseline if keep_baseline else "")
            if decided and not keep_baseline:
                break
    return ProcessRaceResult(
        samples_ms={name: tuple(times) for name, times in samples.items() if times},
        control_ms=tuple(control_ms),
        baseline=baseline,
        fastest=_fastest(running, samples) if running else "",
        rounds_per_process=options.restart_every,
    )


def _prepare(processes: Sequence[TimedProcess], *, restart: bool) -> None:
    """Wait until all processes can be timed: one that still compiles would slow down the others."""
    if restart:
        for process in processes:
            process.restart()
    for process in processes:
        process.ready()


def _run_round(processes: Mapping[str, TimedProcess], rng: random.Random, turns: int) -> dict[str, float]:
    """Take turns, and return one time in milliseconds for each process that has not ended."""
    log_times: dict[str, list[float]] = {name: [] for name in processes}
    started = time.monotonic()
    for _ in range(turns):
        names = list(log_times)
        rng.shuffle(names)
        for name in names:
            sample = processes[name].sample()
            if sample is None or sample <= 0:
                del log_times[name]
            else:
                log_times[name].append(math.log(sample))
        if time.monotonic() - started > _MAX_ROUND_S:
            break
    # Other load on the machine slows down all processes of a turn. So each sample is taken relative to the average of its turn, and
    # the result is scaled to the average of the fastest turn.
    averages = [sum(turn) / len(turn) for turn in zip(*log_times.values(), strict=True)]
    return {
        name: math.exp(min(averages) + median(log - average for log, average in zip(logs, averages, strict=True)))
        for name, logs in log_times.items()
    }


def _eliminate(running: list[str], samples: Mapping[str, Sequence[float]], keep: str) -> tuple[list[str], bool]:
    """Return the names that stay in the race, and whether the race is decided. The name `keep` is never eliminated."""
    fastest = _fastest(running, samples)
    stay, undecided = [], False
    for name in running:
        if name == fastest:
            stay.append(name)
            continue
        differences = [math.log(a / b) for a, b in zip(samples[name], samples[fastest], strict=True)]
        _, low, high = paired_center(differences, deviations=_ELIMINATION_Z)
        if low > 0 and name != keep:
            continue
        stay.append(name)
        undecided |= not (low > -_EQUAL_RATIO and high < _EQUAL_RATIO)
    return stay, not undecided


def _fastest(running: Sequence[str], samples: Mapping[str, Sequence[float]]) -> str:
    """Return the name with the lowest median time, where each sample is taken relative to the median of its round."""
    rounds = min(len(samples[name]) for name in running)
    round_medians = [median(math.log(samples[name][r]) for name in running) for r in range(rounds)]
    return min(running, key=lambda name: median(math.log(samples[name][r]) - round_medians[r] for r in range(rounds)))
