"""What a study tried, what each trial came to, and which plan it recommends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.plan import Plan
from rocsolid.model.setting import Value
from rocsolid.model.timing import Comparison, Timing, Verdict

STUDY_SCHEMA = "rocsolid/study/1"
DUEL_SCHEMA = "rocsolid/ab/1"
MEASURED = "measured"
RUNNING = "running"  # somebody tries it now


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One variant in a process of its own."""

    number: int
    name: str
    choices: Mapping[str, Value]
    kind: str  # `measured`, or the kind of its ending
    reason: str = ""
    phase: str = ""
    samples_ms: tuple[float, ...] = ()
    timing: Timing | None = None
    again: Timing | None = (
        None  # what a second process came to, where the first looked too good; the slower one is `timing`
    )
    setup_s: float = 0.0
    peak_bytes: int = 0  # device memory
    host_bytes: int = 0  # of all its processes
    error: float | None = None  # against eager
    checked: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    log: str = ""
    log_tail: str = ""
    stacks: str = ""
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether it has a time."""
        return self.timing is not None


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """One variant in the race at the end, in processes of its own that took turns with the others'."""

    name: str
    timing: Timing | None = None
    against_start: Comparison | None = None
    rounds: int = 0
    processes: int = 0  # fresh ones, each of which checked the answer
    break_even_calls: int | None = None  # after which its longer set-up has paid for itself
    out: str = ""  # why it ended before the race did


@dataclass(frozen=True, kw_only=True)
class Duel:
    """Two sides of one workload, each in processes of its own that took turns."""

    workload: str
    a: str
    b: str
    timing_a: Timing
    timing_b: Timing
    b_against_a: Comparison
    rounds: int
    processes: int  # fresh ones of each side
    where: Mapping[str, str]

    def json(self) -> str:
        """As a document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(DUEL_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        said = self.b_against_a
        return (
            f"{self.workload}: b ({self.b}) is {said} beside a ({self.a}); "
            f"{self.timing_b} and {self.timing_a}, {self.rounds} rounds, noise {said.noise:.1%}"
        )


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one value is worth: the ratio of times with and without it, all else alike."""

    id: str
    value: object
    speedup: float
    pairs: int  # of trials that differ in nothing else


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything a study found out. `best` is a plan: `study.best.save("plan.toml")`."""

    workload: str
    profile: str
    search: str
    where: Mapping[str, str]
    knobs: Mapping[str, tuple[object, ...]]
    trials: tuple[TrialRecord, ...]
    finalists: tuple[Finalist, ...]
    effects: tuple[Effect, ...]
    winner: str
    verdict: Verdict
    why: str
    noise: float
    best: Plan
    spent_s: float
    ended: str  # why no more was tried

    @property
    def rejected(self) -> tuple[TrialRecord, ...]:
        """The trials without a time."""
        return tuple(trial for trial in self.trials if not trial.measured)

    @property
    def trade_offs(self) -> tuple[TrialRecord, ...]:
        """The trials that no other is at least as good as in time, set-up and device memory together; fastest first."""
        costs = {t.name: (t.timing.median_ms, t.setup_s, t.peak_bytes) for t in self.trials if t.timing}

        def beaten(mine: tuple[float, ...]) -> bool:
            return any(o != mine and all(a <= b for a, b in zip(o, mine, strict=True)) for o in costs.values())

        front = [t for t in self.trials if t.name in costs and not beaten(costs[t.name])]
        return tuple(sorted(front, key=lambda trial: costs[trial.name]))

    def json(self) -> str:
        """As a document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(STUDY_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        return f"{self.workload}: {self.winner}, {self.why} ({len(self.trials)} trials, {self.spent_s:.0f} s)"
