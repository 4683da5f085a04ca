"""One variant of a workload as a trial: what the process is told, and what its ending means for the study."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocsolid.measure.statistics import timing_of
from rocsolid.model.codec import encode
from rocsolid.model.setting import Value
from rocsolid.model.study import MEASURED, TrialRecord
from rocsolid.model.trial_result import Answered, Ending
from rocsolid.tune.isolate.trial import Errand, Limits, Trial
from rocsolid.tune.space import FORM, GRAPH, Choices, Space, name_of, variables_of
from rocsolid.tune.tunableop import with_own_file

_MEASURE: Final = "rocsolid.tune.variant:measure"
WHERE: Final = ("device", "arch", "torch", "python")
_CACHES: Final = "TORCHINDUCTOR_CACHE_DIR"
_CONTEXT: Final = 1 << 30  # of a device's memory, for whatever torch's allocator does not count
_MOST_AT_ONCE: Final = 4


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a machine has for processes that wait beside each other; without a device they would wait for its cores."""

    cores: int = 1
    host_bytes: int = 0
    device_bytes: int = 0
    processes: int = 64  # with a context on one device, before they are in each other's way

    def at_once(self, trials: Sequence[TrialRecord]) -> int:
        """How many processes of each of these, and of a control, can be set up together: half of all memory may be used."""
        lanes = len(trials) + 1
        host = sum(trial.host_bytes for trial in trials) * lanes / len(trials)
        device = sum(trial.peak_bytes + _CONTEXT for trial in trials) * lanes / len(trials)
        if not self.device_bytes or not host:
            return 1
        memory = min(self.host_bytes / 2 / host, self.device_bytes / 2 / device)
        fits = min(memory, self.cores / lanes, self.processes / lanes)
        return max(1, min(_MOST_AT_ONCE, int(fits)))


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all trials of a study have in common."""

    workload: str
    space: Space
    folder: Path  # logs, caches
    limits: Limits = field(default_factory=Limits)
    grad: bool = False
    cold: bool = False
    turns: int = 1  # of each variant in a round of a race
    at_once: int = 1  # processes of each variant that are set up together for a race, and timed one after the other
    room: Room = field(default_factory=Room)
    ranks: int = 1  # processes of one trial, as torchrun starts them
    variables: Mapping[str, str] = field(default_factory=dict)  # of every process, whatever the variant
    target: str = _MEASURE

    def errand(self, choices: Choices, *, stay: bool = False) -> Errand:
        """What a process is told to do for a variant."""
        plan = self.space.plan(choices)
        variables, unset = variables_of(plan)
        variables = {**variables, **self.variables}
        if _CACHES not in os.environ:  # caches of the study's own: set-up times tell what a first start costs
            variables[_CACHES] = str(self.folder / "cache")
        variables = with_own_file(variables, self.folder, plan)
        params: Mapping[str, Any] = {
            "workload": self.workload,
            "plan": encode(plan),
            "form": self.space.value(choices, FORM),
            "graph": self.space.value(choices, GRAPH),
            "grad": self.grad,
            "cold": self.cold,
            "stay": stay,
            "turns": self.turns,
            "ranks": self.ranks,
        }
        return Errand(target=self.target, params=params, limits=self.limits, variables=variables, unset=unset)


def record_of(number: int, choices: Mapping[str, Value], ending: Ending) -> TrialRecord:
    """What is kept of a trial."""
    account = ending.account
    common: dict[str, Any] = {
        "number": number,
        "name": name_of(choices),
        "choices": dict(choices),
        "reason": ending.reason,
        "phase": ending.phase,
        "seconds": account.seconds,
        "phases": account.phases,
        "host_bytes": account.peak_bytes,
        "log": account.log,
    }
    if not isinstance(ending, Answered):
        return TrialRecord(kind=ending.kind, log_tail=account.log_tail, stacks=account.stacks, **common)
    value = ending.value
    samples = tuple(value["samples_ms"])
    return TrialRecord(
        kind=MEASURED,
        samples_ms=samples,
        timing=timing_of(samples, value["clock"]),
        setup_s=value["setup_s"],
        peak_bytes=value["peak_bytes"],
        error=value["error"],
        checked=value["checked"],
        where={name: value[name] for name in WHERE},
        **common,
    )


class Resident:
    """A variant that stays in its process and is timed on request: a lane of the final race.

    Where there is room, the processes that will follow are set up together with the first, and wait.
    """

    def __init__(self, job: Job, choices: Choices, name: str, told: Callable[[str], None]) -> None:
        self._job, self._choices, self._name, self._told = job, choices, name, told
        self._trial: Trial | None = None
        self._waiting: list[Trial] = []
        self._at_once = job.at_once
        self._started = self.processes = 0
        self.out = ""
        self.renew()

    def renew(self) -> None:
        """A fresh process, which checks the answer anew."""
        self._end()
        if self.out:
            return
        self._next()
        self.processes += 1

    def _next(self) -> None:
        if not self._waiting:
            self._waiting = [self._start() for _ in range(self._at_once)]
        self._trial = self._waiting.pop(0)

    def _start(self) -> Trial:
        self._started += 1
        self._told(f"starting {self._name}, process {self._started}")
        folder = self._job.folder / "finals" / f"{self._name}-{self._started}"
        return Trial(self._job.errand(self._choices, stay=True), folder)

    def ready(self) -> bool:
        """Wait until it can be timed; False when the process has ended instead, and `out` says how."""
        if self._trial is not None and not self._trial.ready():
            if self._at_once == 1:
                self._ended(self._trial)
            else:  # perhaps there was no room beside the others
                self._lost(self._trial)
                self.cancel()
                self._next()
                return self.ready()
        for trial in [trial for trial in self._waiting if not trial.ready()]:
            self._lost(trial)
            self._waiting.remove(trial)
        return self._trial is not None

    def _lost(self, trial: Trial) -> None:
        """From now on it is set up alone."""
        self._at_once = 1
        ending = trial.wait()
        self._told(f"{self._name} could not be set up beside the others: {ending.kind}, {ending.reason}")

    def sample(self) -> float | None:
        """Milliseconds of one sample; None when the process has ended."""
        trial = self._trial
        if trial is None:
            return None
        reply = trial.ask() if trial.ready() else None
        if isinstance(reply, float):
            return reply
        self._ended(trial)
        return None

    def finish(self) -> dict[str, str]:
        """End all processes, and say where it ran; an answer that has become wrong while it was timed puts the variant out."""
        where = self._end()
        self.cancel()
        return where

    def _end(self) -> dict[str, str]:
        """End the process that is being timed."""
        if self._trial is None:
            return {}
        ending = self._trial.close() if self._trial.ready() else self._trial.wait()
        self._trial = None
        if isinstance(ending, Answered):
            return {name: ending.value[name] for name in WHERE}
        self.out = f"{ending.kind}: {ending.reason}"
        return {}

    def _ended(self, trial: Trial) -> None:
        ending = trial.wait()
        self.out = f"{ending.kind}: {ending.reason}"
        self._trial = None

    def cancel(self) -> None:
        """End the processes at once."""
        for trial in (*([self._trial] if self._trial else []), *self._waiting):
            trial.cancel()
        self._trial, self._waiting = None, []
