"""The result of `rocsolid tune`: its trials, the final race and the recommended plan. And the result of `rocsolid ab`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.notebook import NotebookResult
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Value
from rocsolid.model.timing import SpeedComparison, Timing, Verdict

STUDY_SCHEMA = "rocsolid/study/1"
AB_SCHEMA = "rocsolid/ab/1"
MEASURED = "measured"
RUNNING = "running"  # the variant is being tried right now


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One variant, tried in a child process."""

    number: int
    name: str
    choices: Mapping[str, Value]
    kind: str  # `measured`, or the kind of its TrialResult
    reason: str = ""
    phase: str = ""
    samples_ms: tuple[float, ...] = ()
    timing: Timing | None = None
    # A time that looks too good is measured again in a second process. `timing` is the slower of the two if they disagree, and
    # this is the other one.
    second_timing: Timing | None = None
    setup_s: float = 0.0
    peak_bytes: int = 0  # device memory
    host_bytes: int = 0  # host memory of all its processes
    error: float | None = None  # relative error against eager
    checked: str = ""  # what was compared with eager
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds in each
    log: str = ""
    log_tail: str = ""
    stacks: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)  # device, arch, torch, python

    @property
    def measured(self) -> bool:
        """Whether it has a time."""
        return self.timing is not None


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """One variant in the final race."""

    name: str
    timing: Timing | None = None
    against_start: SpeedComparison | None = None
    rounds: int = 0
    processes: int = 0  # fresh processes, each of which checked the result
    break_even_calls: int | None = None  # calls after which its longer set-up has paid off
    failure: str = ""  # why it failed before the race was over


@dataclass(frozen=True, kw_only=True)
class ABResult(NotebookResult):
    """Two sides of one workload, compared in fresh processes that took turns."""

    workload: str
    a: str
    b: str
    timing_a: Timing
    timing_b: Timing
    b_against_a: SpeedComparison
    rounds: int
    processes: int  # fresh processes of each side
    machine: Mapping[str, str]

    def json(self) -> str:
        """As a document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(AB_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        found = self.b_against_a
        return (
            f"{self.workload}: b ({self.b}) compared with a ({self.a}): {found}; "
            f"a {self.timing_a}, b {self.timing_b}, {self.rounds} rounds, noise {found.noise:.1%}"
        )


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one value: the ratio of the times without it and with it, everything else equal."""

    id: str
    value: object
    speedup: float
    pairs: int  # of trials that differ in nothing else


@dataclass(frozen=True, kw_only=True)
class Study(NotebookResult):
    """All results of one `rocsolid tune`. `best` is a plan: `study.best.save("plan.toml")`."""

    workload: str
    profile: str
    search: str
    machine: Mapping[str, str]
    knobs: Mapping[str, tuple[object, ...]]  # what was varied, with its values
    trials: tuple[TrialRecord, ...]
    finalists: tuple[Finalist, ...]
    effects: tuple[Effect, ...]
    winner: str
    verdict: Verdict
    reason: str  # for the verdict
    noise: float
    best: Plan
    elapsed_s: float
    stopped: str  # why no more variants were tried

    @property
    def rejected(self) -> tuple[TrialRecord, ...]:
        """The trials without a time."""
        return tuple(trial for trial in self.trials if not trial.measured)

    @property
    def trade_offs(self) -> tuple[TrialRecord, ...]:
        """The Pareto front of time, set-up time and device memory, fastest first."""
        costs = {t.name: (t.timing.median_ms, t.setup_s, t.peak_bytes) for t in self.trials if t.timing}

        def dominated(own: tuple[float, ...]) -> bool:
            return any(o != own and all(a <= b for a, b in zip(o, own, strict=True)) for o in costs.values())

        front = [t for t in self.trials if t.name in costs and not dominated(costs[t.name])]
        return tuple(sorted(front, key=lambda trial: costs[trial.name]))

    def json(self) -> str:
        """As a document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(STUDY_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        return f"{self.workload}: {self.winner}, {self.reason} ({len(self.trials)} trials, {self.elapsed_s:.0f} s)"
