"""A race between processes: rounds in random order, fresh processes in between, and whoever is surely slower drops out.

Two processes that run the same program differ by a per cent or more for as long as they live. So each lane is renewed every few
rounds, and a control, which is the first lane once more, shows how far a thing seems to be from itself.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Protocol

from rocsolid.measure.statistics import centre_of, compare, error_of_mean, timing_of
from rocsolid.model.timing import Comparison, Timing

_ROUND_S: Final = 0.5  # what a round of several turns may last, where one turn of each is shorter
_LOOK_FROM, _LOOK_EVERY = 8, 4  # rounds
_SURE: Final = 2.6  # standard errors: several looks need more than 1.96 for one
_ALIKE: Final = 0.005  # lanes this close to the leader are not worth more rounds
_LIVES: Final = 3  # processes of the control: from fewer, a chance likeness of two processes looks like a quiet machine


class Lane(Protocol):
    """Something that can be timed again and again."""

    def ready(self) -> bool:
        """Wait until it can be timed; False when it has ended."""
        ...

    def sample(self) -> float | None:
        """Milliseconds; None when it has ended."""
        ...

    def renew(self) -> None:
        """The same in a fresh process."""
        ...


@dataclass(frozen=True, kw_only=True)
class Knockout:
    """What was measured: each lane's list ends with the round in which it dropped out."""

    samples_ms: Mapping[str, tuple[float, ...]]
    control_ms: tuple[float, ...]
    baseline: str
    leader: str
    life: int = 8  # rounds of one process
    clock: str = "host"

    def timing(self, name: str) -> Timing:
        """One lane by itself."""
        return timing_of(self.samples_ms[name], self.clock)

    def beside(self, baseline: str, name: str, least_gain: float = 0.02) -> Comparison:
        """One lane beside another, over the rounds that both ran."""
        ours, theirs = self.samples_ms[baseline], self.samples_ms[name]
        rounds = min(len(ours), len(theirs))
        noise = self._noise_of(math.ceil(rounds / self.life))
        return compare(ours[:rounds], theirs[:rounds], least_gain=least_gain, noise=noise)

    @property
    def noise(self) -> float:
        """How far the baseline seemed to be from itself, as a ratio: 0.02 is two per cent."""
        return self._noise_of(0)

    def _noise_of(self, processes: int) -> float:
        """How far apart two of a kind may seem that had so many processes each; 0: as many as the control."""
        own = self.samples_ms.get(self.baseline, ())
        rounds = min(len(own), len(self.control_ms))
        if not rounds:
            return 0.0
        differences = [math.log(a / b) for a, b in zip(own[:rounds], self.control_ms[:rounds], strict=True)]
        _, low, high = centre_of(differences)
        # Rounds of one process share its offset, so the processes are what was repeated, and the truth about them is nought.
        lives = [differences[at : at + self.life] for at in range(0, rounds, self.life)]
        offsets = [median(life) for life in lives if 2 * len(life) >= min(self.life, rounds)]
        return math.expm1(max(error_of_mean(offsets, processes), (high - low) / 2))

    def followed_by(self, later: "Knockout") -> "Knockout":
        """Both races as one, of the same lanes; the later one ran in fresh processes."""
        samples = {name: taken + later.samples_ms.get(name, ()) for name, taken in self.samples_ms.items()}
        return replace(later, samples_ms=samples, control_ms=self.control_ms + later.control_ms)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How long a race goes on."""

    rounds: int = 60
    renew_every: int = 8
    budget_s: float = 300.0
    turns: int = 1  # of each lane in a round
    drop: bool = True  # False: all run to the end, as in a comparison of two
    seed: int = 0


def knockout(
    lanes: Mapping[str, Lane],
    control: Lane | None = None,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    told: Callable[[int, Sequence[str]], None] = lambda *_: None,
) -> Knockout:
    """Race the lanes, the first of which is the baseline; `told` hears the round and who is still in it."""
    baseline, *_ = lanes
    order = random.Random(rules.seed)  # noqa: S311 - an order, no secret
    samples: dict[str, list[float]] = {name: [] for name in lanes}
    control_ms: list[float] = []
    running = list(lanes)
    begun = time.monotonic()
    for number in range(rules.rounds):
        if number >= _LOOK_FROM and time.monotonic() - begun > rules.budget_s:
            break
        if number % rules.renew_every == 0:
            _set_up([lanes[name] for name in running] + ([control] if control and baseline in running else []), number)
        told(number, running)
        entrants = {name: lanes[name] for name in running} | ({"": control} if control and baseline in running else {})
        for name, taken in _round(entrants, order, rules.turns).items():
            (samples[name] if name else control_ms).append(taken)
        running = [name for name in running if len(samples[name]) == number + 1]  # the others have ended
        if len(control_ms) <= number:
            control = None
        if not running or (
            not rules.drop and len(running) < len(lanes)
        ):  # of two, one alone has nothing to be held against
            break
        if rules.drop and number + 1 >= _LOOK_FROM and (number + 1) % _LOOK_EVERY == 0:
            young = control is not None and baseline in running and number + 1 < _LIVES * rules.renew_every
            running, settled = _kept(running, samples, spared=baseline if young else "")
            if settled and not young:
                break
    raced = {name: tuple(taken) for name, taken in samples.items() if taken}
    return Knockout(
        samples_ms=raced,
        control_ms=tuple(control_ms),
        baseline=baseline,
        leader=_leader(running, samples) if running else "",
        life=rules.renew_every,
    )


def _set_up(lanes: Sequence[Lane], number: int) -> None:
    """All of them, before any is timed: what is still being compiled disturbs its neighbours."""
    if number:
        for lane in lanes:
            lane.renew()
    for lane in lanes:
        lane.ready()


def _round(lanes: Mapping[str, Lane], order: random.Random, turns: int) -> dict[str, float]:
    """One figure for each lane that has not ended, of a few turns that all of them took over the same stretch of time."""
    taken: dict[str, list[float]] = {name: [] for name in lanes}
    begun = time.monotonic()
    for _ in range(turns):
        names = list(taken)
        order.shuffle(names)
        for name in names:
            sample = lanes[name].sample()
            if sample is None or sample <= 0:
                del taken[name]
            else:
                taken[name].append(math.log(sample))
        if time.monotonic() - begun > _ROUND_S:
            break
    # What slows a machine down slows all that ran in the same turn: each is held against its turn, and the best turn counts.
    paces = [sum(turn) / len(turn) for turn in zip(*taken.values(), strict=True)]
    return {
        name: math.exp(min(paces) + median(log - pace for log, pace in zip(logs, paces, strict=True)))
        for name, logs in taken.items()
    }


def _kept(running: list[str], samples: Mapping[str, Sequence[float]], spared: str) -> tuple[list[str], bool]:
    """Who stays, whoever is spared among them, and whether there is nothing left to find out."""
    leader = _leader(running, samples)
    kept, undecided = [], False
    for name in running:
        if name == leader:
            kept.append(name)
            continue
        behind = [math.log(a / b) for a, b in zip(samples[name], samples[leader], strict=True)]
        _, low, high = centre_of(behind, deviations=_SURE)
        if low > 0 and name != spared:
            continue
        kept.append(name)
        undecided |= not (low > -_ALIKE and high < _ALIKE)
    return kept, not undecided


def _leader(running: Sequence[str], samples: Mapping[str, Sequence[float]]) -> str:
    """The lane that is fastest in the middle round, each time held against the round it was taken in."""
    rounds = min(len(samples[name]) for name in running)
    middles = [median(math.log(samples[name][r]) for name in running) for r in range(rounds)]
    return min(running, key=lambda name: median(math.log(samples[name][r]) - middles[r] for r in range(rounds)))
