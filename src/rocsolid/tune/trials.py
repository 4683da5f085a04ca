"""A variant as a trial: what its process runs, what the study records, and how it is timed in the final race."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog import cache_folders
from rocsolid.catalog.tuning import DEFAULT_MAX_PROCESSES_PER_GPU
from rocsolid.measure.statistics import summarize_samples
from rocsolid.model.codec import encode
from rocsolid.model.setting import Value
from rocsolid.model.study import MEASURED, TrialRecord
from rocsolid.model.trial_result import Returned, TrialResult
from rocsolid.tune.isolate.trial import Limits, Trial, TrialSpec
from rocsolid.tune.space import FORM, GRAPH, Choices, Space, process_variables, variant_name
from rocsolid.tune.tunableop import with_results_file

MACHINE_FIELDS: Final = ("device", "arch", "torch", "python")
_MEASURE: Final = "rocsolid.tune.run_variant:measure"
_CONTEXT_BYTES: Final = 1 << 30  # device memory that each process uses besides torch's allocator
_MAX_PARALLEL_SETUPS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Cores, memory and number of processes of this machine. They limit how many processes of a race are set up together."""

    cores: int = 1
    host_bytes: int = 0
    device_bytes: int = 0  # 0: no GPU; then the processes would compete for the cores, and are set up one at a time
    processes: int = DEFAULT_MAX_PROCESSES_PER_GPU  # how many processes can use a GPU at the same time

    def parallel_setups(self, trials: Sequence[TrialRecord]) -> int:
        """Return how many processes of each variant, and of the control, can be set up together, using at most half of the memory."""
        variants = len(trials) + 1
        host_bytes = sum(trial.host_bytes for trial in trials) * variants / len(trials)
        device_bytes = sum(trial.peak_bytes + _CONTEXT_BYTES for trial in trials) * variants / len(trials)
        if not self.device_bytes or not host_bytes:
            return 1
        by_memory = min(self.host_bytes / 2 / host_bytes, self.device_bytes / 2 / device_bytes)
        setups = min(by_memory, self.cores / variants, self.processes / variants)
        return max(1, min(_MAX_PARALLEL_SETUPS, int(setups)))


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """What all trials of a study have in common."""

    workload: str
    space: Space
    folder: Path  # for logs and caches
    limits: Limits = field(default_factory=Limits)
    grad: bool = False  # leave gradients on
    cold: bool = False  # flush the GPU's caches before every call
    turns: int = 1  # how often each variant is timed in a round of a race
    parallel_setups: int = 1  # processes of each variant that are set up together; they are timed one after the other
    capacity: Capacity = field(default_factory=Capacity)
    ranks: int = 1  # processes of one trial, started as torchrun starts them
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables of every process
    target: str = _MEASURE  # the function that measures a variant

    def trial_spec(self, choices: Choices, *, on_request: bool = False) -> TrialSpec:
        """Return the spec of a trial of this variant; with `on_request`, its process takes samples on request."""
        plan = self.space.plan(choices)
        variables, unset = process_variables(plan)
        variables = {**variables, **self.variables}
        if cache_folders.INDUCTOR not in os.environ:  # with an own cache, set-up times are those of a first start
            variables[cache_folders.INDUCTOR] = str(self.folder / "cache")
        variables = with_results_file(variables, self.folder, plan)
        params: Mapping[str, Any] = {
            "workload": self.workload,
            "plan": encode(plan),
            "form": self.space.value(choices, FORM),
            "graph": self.space.value(choices, GRAPH),
            "grad": self.grad,
            "cold": self.cold,
            "on_request": on_request,
            "turns": self.turns,
            "ranks": self.ranks,
        }
        return TrialSpec(target=self.target, params=params, limits=self.limits, variables=variables, unset=unset)


def trial_record(number: int, choices: Mapping[str, Value], result: TrialResult) -> TrialRecord:
    """Return what the study stores of a trial."""
    cost = result.cost
    common: dict[str, Any] = {
        "number": number,
        "name": variant_name(choices),
        "choices": dict(choices),
        "reason": result.reason,
        "phase": result.phase,
        "seconds": cost.seconds,
        "phases": cost.phases,
        "host_bytes": cost.peak_bytes,
        "log": cost.log,
    }
    if not isinstance(result, Returned):
        return TrialRecord(kind=result.kind, log_tail=cost.log_tail, stacks=cost.stacks, **common)
    value = result.value
    samples = tuple(value["samples_ms"])
    return TrialRecord(
        kind=MEASURED,
        samples_ms=samples,
        timing=summarize_samples(samples, value["clock"]),
        setup_s=value["setup_s"],
        peak_bytes=value["peak_bytes"],
        relative_error=value["relative_error"],
        checked=value["checked"],
        machine={name: value[name] for name in MACHINE_FIELDS},
        **common,
    )


class VariantProcess:
    """A variant in a race: a process that is timed on request; `restart` replaces it by a fresh one.

    If the machine has enough cores and memory, several processes are set up together, and wait until they are needed.
    """

    def __init__(self, config: StudyConfig, choices: Choices, name: str, on_status: Callable[[str], None]) -> None:
        self._config, self._choices, self._name, self._on_status = config, choices, name, on_status
        self._trial: Trial | None = None
        self._waiting: list[Trial] = []
        self._parallel_setups = config.parallel_setups
        self._started = 0  # all processes, with those that were not timed yet
        self.processes = 0  # that were timed
        self.failure = ""  # why the variant can no longer be timed
        self.restart()

    def restart(self) -> None:
        """Replace the process by a fresh one, which checks its results again."""
        self._end()
        if self.failure:
            return
        self._use_next()
        self.processes += 1

    def _use_next(self) -> None:
        if not self._waiting:
            self._waiting = [self._start() for _ in range(self._parallel_setups)]
        self._trial = self._waiting.pop(0)

    def _start(self) -> Trial:
        self._started += 1
        self._on_status(f"starting {self._name}, process {self._started}")
        folder = self._config.folder / "finals" / f"{self._name}-{self._started}"
        return Trial(self._config.trial_spec(self._choices, on_request=True), folder)

    def ready(self) -> bool:
        """Wait until it can be timed; returns False when its process has ended, with the reason in `failure`."""
        if self._trial is not None and not self._trial.ready():
            if self._parallel_setups == 1:
                self._fail(self._trial)
            else:  # perhaps there was not enough memory for several processes
                self._set_up_alone(self._trial)
                self.cancel()
                self._use_next()
                return self.ready()
        for trial in [trial for trial in self._waiting if not trial.ready()]:
            self._set_up_alone(trial)
            self._waiting.remove(trial)
        return self._trial is not None

    def _set_up_alone(self, trial: Trial) -> None:
        """Set up one process at a time from now on, because this one failed during a parallel set-up."""
        self._parallel_setups = 1
        result = trial.wait()
        self._on_status(f"{self._name} could not be set up in parallel, retrying alone: {result.kind}, {result.reason}")

    def sample(self) -> float | None:
        """Take one sample, in milliseconds; None when the process has ended."""
        trial = self._trial
        if trial is None:
            return None
        reply = trial.request() if trial.ready() else None
        if isinstance(reply, float):
            return reply
        self._fail(trial)
        return None

    def finish(self) -> dict[str, str]:
        """End all processes; returns the machine they ran on. If the results became wrong during the timing, this sets `failure`."""
        machine = self._end()
        self.cancel()
        return machine

    def _end(self) -> dict[str, str]:
        """End the process that is being timed."""
        if self._trial is None:
            return {}
        result = self._trial.close() if self._trial.ready() else self._trial.wait()
        self._trial = None
        if isinstance(result, Returned):
            return {name: result.value[name] for name in MACHINE_FIELDS}
        self.failure = f"{result.kind}: {result.reason}"
        return {}

    def _fail(self, trial: Trial) -> None:
        result = trial.wait()
        self.failure = f"{result.kind}: {result.reason}"
        self._trial = None

    def cancel(self) -> None:
        """End all processes immediately."""
        for trial in (*([self._trial] if self._trial else []), *self._waiting):
            trial.cancel()
        self._trial, self._waiting = None, []
