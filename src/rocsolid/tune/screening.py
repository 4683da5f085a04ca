"""The first half of a study: try variants in child processes, several at a time, and store each result immediately."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocsolid.errors import CannotRunError, InputError
from rocsolid.model.study import RUNNING, TrialRecord
from rocsolid.model.trial_result import Cancelled, Crashed, DeviceLost, Raised, TrialResult, Unkillable
from rocsolid.tune.effort import Effort, Progress, TrialUpdate
from rocsolid.tune.engine import Engine
from rocsolid.tune.search import NextVariant
from rocsolid.tune.space import Choices, variant_name
from rocsolid.tune.store import Store
from rocsolid.tune.trials import StudyConfig, trial_record

_TRIALS_BUDGET_SHARE: Final = 0.7  # share of the budget for trials; the rest is for the final comparison
_MIN_TRIAL_S: Final = 30.0  # what a trial may take even when the budget is nearly spent
_POLL_S: Final = 0.2
_WORKLOAD_PHASES: Final = ("import", "build")  # phases in which only the workload's own code runs
_MAX_LOST_DEVICES: Final = 2  # the study stops after so many GPU faults in a row
_MAX_LOST_WORKERS: Final = 2  # a variant whose worker was lost so many times counts as crashed
_SUSPICIOUS_SPEEDUP: Final = 2.0  # a variant this many times as fast as the fastest so far is measured again
_MAX_TIME_RATIO: Final = 1.5  # the second of two measurements may take this many times the time of the first


class Screening:
    """The running and the finished trials of a study."""

    def __init__(
        self, config: StudyConfig, next_variant: NextVariant, store: Store, engine: Engine, effort: Effort
    ) -> None:
        self._config, self._next_variant, self._store = config, next_variant, store
        self._engine, self._effort = engine, effort
        self._max_trials = min(effort.trials, config.space.size)
        self._started = time.monotonic()
        self._running: dict[int, Choices] = {}
        self._suspicious: dict[int, TrialRecord] = {}  # measured once, being measured again
        self._lost_devices = 0
        self._lost_workers: Counter[str] = Counter()

    def run(self, progress: Progress) -> str:
        """Try variants until the time or the number of trials is used up, or all were tried; returns the reason for stopping."""
        stop_reason = ""
        try:
            while not stop_reason or self._running:
                while not stop_reason and len(self._running) < self._engine.parallel_trials:
                    started, stop_reason = self._start_next(progress)
                    if not started:
                        break
                if not self._running:
                    time.sleep(0 if stop_reason else _POLL_S)
                    continue
                for number, result in self._engine.finished(_POLL_S):
                    self._handle(number, result, progress)
            return stop_reason
        finally:
            for number in self._running:  # interrupted: these count as not tried
                self._store.release(number)

    def finished(self) -> list[TrialRecord]:
        """Return the finished trials whose variants are in the space of this run; an earlier run may have had a larger space."""
        return [trial for trial in self._store.finished() if self._config.space.contains(trial.choices)]

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def _left_s(self) -> float:
        return _TRIALS_BUDGET_SHARE * self._effort.budget_s - self._elapsed_s

    def _start_next(self, progress: Progress) -> tuple[bool, str]:
        """Start the next trial; returns whether one was started, and the reason for stopping if there will be no more."""
        finished, running = self.finished(), self._store.running()
        if len(finished) + len(self._running) >= self._effort.trials:
            return False, f"the limit of {self._effort.trials} trials was reached"
        if self._left_s <= 0 and (finished or self._running):
            return False, "the budget for trials was used up"
        running_trials = [TrialRecord(number=0, name=name, choices={}, kind=RUNNING) for name in running]
        choices = self._next_variant([*finished, *running_trials])
        if choices is None:
            others = len(running) - len(self._running)
            if others > 0:  # they will be finished, or released
                progress.on_status(f"waiting for {others} trial{'s' * (others > 1)} of other tuners")
            return False, "" if running else "all variants were tried"
        number = self._store.claim(variant_name(choices))
        if number is None:  # another tuner has just reserved this variant
            return False, ""
        self._running[number] = choices
        self._launch(number, progress)
        return True, ""

    def _launch(self, number: int, progress: Progress, *, is_repeat: bool = False) -> None:
        choices = self._config.space.variant(self._running[number])
        total_s = max(_MIN_TRIAL_S, self._effort.budget_s - self._elapsed_s)
        limits = replace(self._config.limits, total_s=min(self._config.limits.total_s, total_s))
        spec = replace(self._config, limits=limits).trial_spec(choices)
        title = f"trial {number} of at most {self._max_trials}: {variant_name(choices)}"
        if is_repeat:
            title += " (measured again)"
        progress.on_status(title)
        folder = self._config.folder / "trials" / (f"{number}-again" if is_repeat else f"{number}")
        self._engine.start(number, spec, folder, lambda phase: progress.on_status(f"{title}, phase {phase}"))

    def _handle(self, number: int, result: TrialResult | None, progress: Progress) -> None:
        choices = self._running[number]
        if result is None:
            self._lost_workers[variant_name(choices)] += 1
            if self._lost_workers[variant_name(choices)] < _MAX_LOST_WORKERS:
                self._forget(number)
                return
            result = Crashed(message=f"its worker was lost {_MAX_LOST_WORKERS} times", phase="unknown")
        if isinstance(result, Cancelled):
            self._forget(number)
            return
        finished = self.finished()
        if not finished and _workload_failed(result):
            self._forget(number)
            error = result.message.removeprefix(f"{InputError.__name__}: ")
            msg = f"{error}\n  every variant would fail, so the study was stopped; output of the workload: {result.cost.log}"
            raise InputError(msg)
        record = trial_record(number, choices, result)
        if number in self._suspicious:
            record = merge_measurements(self._suspicious.pop(number), record)
        elif suspiciously_fast(record, finished):
            self._suspicious[number] = record
            self._launch(number, progress, is_repeat=True)
            return
        del self._running[number]
        self._store.save(record)
        progress.on_trial(
            TrialUpdate(
                record=record,
                finished=self.finished(),
                max_trials=self._max_trials,
                elapsed_s=self._elapsed_s,
                left_s=max(0.0, self._left_s),
            )
        )
        self._check_device(result)

    def _forget(self, number: int) -> None:
        del self._running[number]
        self._suspicious.pop(number, None)
        self._store.release(number)

    def _check_device(self, result: TrialResult) -> None:
        self._lost_devices = self._lost_devices + 1 if isinstance(result, DeviceLost) else 0
        if isinstance(result, Unkillable) or self._lost_devices >= _MAX_LOST_DEVICES:
            msg = (
                f"stopped because the GPU is no longer usable: {result.reason}\n"
                "  finished trials are saved; reset the GPU, then run the same command again to continue"
            )
            raise CannotRunError(msg)


def _workload_failed(result: TrialResult) -> bool:
    """Whether the workload's own code failed, which would then fail in every variant."""
    return isinstance(result, Raised) and result.phase in _WORKLOAD_PHASES


def suspiciously_fast(record: TrialRecord, finished: Sequence[TrialRecord]) -> bool:
    """Whether a time is so much shorter than all others that a measurement error is more likely than a real gain."""
    if record.timing is None:
        return False
    others = [trial.timing.median_ms for trial in finished if trial.timing]
    return record.timing.median_ms <= 0 or (
        bool(others) and record.timing.median_ms * _SUSPICIOUS_SPEEDUP < min(others)
    )


def merge_measurements(first: TrialRecord, second: TrialRecord) -> TrialRecord:
    """Return one record for two measurements of the same variant: the failure of the second, or the slower time if they differ."""
    seconds = first.seconds + second.seconds
    if first.timing is None or second.timing is None:
        failure = second.reason or second.kind
        reason = f"{failure}; the variant was being measured again, because its first time ({first.timing}) was suspiciously short"
        return replace(second, reason=reason, seconds=seconds)
    if first.timing.median_ms * _MAX_TIME_RATIO < second.timing.median_ms:
        reason = f"a first process measured {first.timing}, but a second process did not confirm this"
        return replace(second, second_timing=first.timing, reason=reason, seconds=seconds)
    reason = f"confirmed by a second process: {second.timing}"
    return replace(first, second_timing=second.timing, reason=reason, seconds=seconds)
