"""The result of `rocsolid tune` (its trials, the final comparison and the best plan), and the result of `rocsolid ab`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.notebook import NotebookResult
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Value
from rocsolid.model.timing import SpeedComparison, Timing, Verdict

STUDY_SCHEMA = "rocsolid/study/1"
AB_SCHEMA = "rocsolid/ab/1"
MEASURED = "measured"
RUNNING = "running"  # the kind of a trial that has not ended yet


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One variant and what was measured in its child process."""

    number: int
    name: str
    choices: Mapping[str, Value]
    kind: str  # `measured`, or the kind of its TrialResult
    reason: str = ""  # why it ended this way
    phase: str = ""  # the phase in which it ended
    samples_ms: tuple[float, ...] = ()
    timing: Timing | None = None
    # A variant that is suspiciously fast is measured again in a second process. If the two times differ too much, `timing` is the
    # slower one. `second_timing` is the other one.
    second_timing: Timing | None = None
    setup_s: float = 0.0
    peak_bytes: int = 0  # device memory
    host_bytes: int = 0  # host memory of all its processes
    relative_error: float | None = None  # compared with eager
    checked: str = ""  # what was compared with eager, in words
    seconds: float = 0.0  # how long the trial took
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds spent in each phase
    log: str = ""  # the file with everything it printed
    log_tail: str = ""
    stacks: str = ""  # Python stacks of all threads, if it had to be killed
    machine: Mapping[str, str] = field(default_factory=dict)  # device, arch, torch, python

    @property
    def measured(self) -> bool:
        """Whether it has a time."""
        return self.timing is not None


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """One of the best variants, measured in the final comparison."""

    name: str
    timing: Timing | None = None
    against_baseline: SpeedComparison | None = None
    rounds: int = 0
    processes: int = 0  # fresh processes, each of which checked the result
    break_even_calls: int | None = None  # after so many calls, its longer set-up has paid off
    failure: str = ""  # why it failed during the final comparison; empty if it did not


@dataclass(frozen=True, kw_only=True)
class ABResult(NotebookResult):
    """The comparison of two sides, `a` and `b`, of one workload, in fresh processes that took turns."""

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
        """Return the JSON document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(AB_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        comparison = self.b_against_a
        return (
            f"{self.workload}: b ({self.b}) compared with a ({self.a}): {comparison}; "
            f"a {self.timing_a}, b {self.timing_b}, {self.rounds} rounds, noise: processes that run the same variant differ by {comparison.noise:.1%}"
        )


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one value: how many times as fast a trial with it is as one without it, everything else equal."""

    id: str
    value: object
    speedup: float
    pairs: int  # number of pairs of trials that differ only in this value


@dataclass(frozen=True, kw_only=True)
class Study(NotebookResult):
    """All results of one `rocsolid tune`. `best` is a plan: `study.best.save("plan.toml")`."""

    workload: str
    profile: str
    search: str
    machine: Mapping[str, str]
    knobs: Mapping[str, tuple[object, ...]]  # what was varied: the values of each
    trials: tuple[TrialRecord, ...]
    finalists: tuple[Finalist, ...]
    effects: tuple[Effect, ...]
    winner: str  # the name of the best variant
    verdict: Verdict  # on the winner, compared with the baseline
    reason: str  # for the verdict
    noise: float  # how much identical processes differ, as a ratio: 0.02 is two per cent
    best: Plan
    elapsed_s: float
    stop_reason: str  # why no more variants were tried

    @property
    def rejected(self) -> tuple[TrialRecord, ...]:
        """The trials without a time."""
        return tuple(trial for trial in self.trials if not trial.measured)

    @property
    def trade_offs(self) -> tuple[TrialRecord, ...]:
        """The trials on the Pareto front of time, set-up time and device memory, fastest first."""
        costs = {t.name: (t.timing.median_ms, t.setup_s, t.peak_bytes) for t in self.trials if t.timing}

        def is_dominated(cost: tuple[float, ...]) -> bool:
            """Whether another trial is at least as good in everything."""
            return any(
                other != cost and all(theirs <= own for theirs, own in zip(other, cost, strict=True))
                for other in costs.values()
            )

        front = [t for t in self.trials if t.name in costs and not is_dominated(costs[t.name])]
        return tuple(sorted(front, key=lambda trial: costs[trial.name]))

    def json(self) -> str:
        """Return the JSON document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(STUDY_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        trials = f"{len(self.trials)} trial{'s' * (len(self.trials) != 1)}"
        return f"{self.workload}: {self.winner}, {self.reason} ({trials}, {self.elapsed_s:.0f} s)"
