"""The first half of a study: variants in processes of their own, as many at once as there are slots, each kept as soon as it ended."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocsolid.errors import CannotRunError, InputError
from rocsolid.model.study import RUNNING, TrialRecord
from rocsolid.model.trial_result import Cancelled, Crashed, DeviceLost, Ending, Refused, Unkillable
from rocsolid.tune.effort import Effort, Progress
from rocsolid.tune.engine import Engine
from rocsolid.tune.search import Next
from rocsolid.tune.space import Choices, name_of
from rocsolid.tune.store import Store
from rocsolid.tune.trials import Job, record_of

_FOR_TRIALS: Final = 0.7  # of the budget; the rest is for the race
_SHORTEST_S: Final = 30.0  # what a trial is given even when the budget is nearly spent
_LOOK_AGAIN_S: Final = 0.2
_BEFORE_THE_VARIANT: Final = ("import", "build")  # phases in which only the workload's own code runs
_LOST: Final = (
    2  # devices lost in a row, after which a study does not go on; workers lost over one variant, which gives it up
)
_TOO_GOOD: Final = 2.0  # times as fast as the best before it: measured again before it is believed
_AGREES: Final = 1.5  # how far apart the two measurements may be


class Screening:
    """What is under way, and what has become of it."""

    def __init__(self, job: Job, following: Next, store: Store, engine: Engine, effort: Effort) -> None:
        self._job, self._following, self._store, self._engine, self._effort = job, following, store, engine, effort
        self._begun = time.monotonic()
        self._running: dict[int, Choices] = {}
        self._again: dict[int, TrialRecord] = {}  # measured once, and too good to be believed at once
        self._lost_devices = 0
        self._lost_workers: Counter[str] = Counter()

    def run(self, progress: Progress) -> str:
        """Until the budget is spent, the trials are, or nothing is left to try; returns which."""
        over = ""
        try:
            while not over or self._running:
                while not over and len(self._running) < self._engine.slots:
                    started, over = self._begin(progress)
                    if not started:
                        break
                if not self._running:
                    time.sleep(0 if over else _LOOK_AGAIN_S)
                    continue
                for number, ending in self._engine.ended(_LOOK_AGAIN_S):
                    self._end(number, ending, progress)
            return over
        finally:
            for number in self._running:  # interrupted: they count as not tried
                self._store.give_up(number)

    def done(self) -> list[TrialRecord]:
        """What this study has tried of the space as it is now."""
        return [trial for trial in self._store.done() if self._job.space.holds(trial.choices)]

    @property
    def _left_s(self) -> float:
        return _FOR_TRIALS * self._effort.budget_s - (time.monotonic() - self._begun)

    def _begin(self, progress: Progress) -> tuple[bool, str]:
        """Start the next trial; whether that was done, and why there will be no more."""
        done, under_way = self.done(), self._store.running()
        if len(done) + len(self._running) >= self._effort.trials:
            return False, f"{self._effort.trials} trials were allowed"
        if self._left_s <= 0 and (done or self._running):
            return False, "the budget for trials was spent"
        tried_now = [TrialRecord(number=0, name=name, choices={}, kind=RUNNING) for name in under_way]
        choices = self._following([*done, *tried_now])
        if choices is None:
            others = len(under_way) - len(self._running)
            if others > 0:  # they will be among those done soon, or free again
                progress.phase(f"waiting for {others} trial{'s' * (others > 1)} of other tuners")
            return False, "" if under_way else "nothing was left to try"
        number = self._store.claim(name_of(choices))
        if number is None:  # another tuner was quicker
            return False, ""
        self._running[number] = choices
        self._launch(number, "", progress)
        return True, ""

    def _launch(self, number: int, again: str, progress: Progress) -> None:
        chosen = self._job.space.variant(self._running[number])
        within = max(_SHORTEST_S, self._effort.budget_s - (time.monotonic() - self._begun))
        limits = replace(self._job.limits, total_s=min(self._job.limits.total_s, within))
        errand = replace(self._job, limits=limits).errand(chosen)
        said = f"trial {number}{again}: {name_of(chosen)}"
        progress.phase(said)
        folder = self._job.folder / "trials" / f"{number}{again.replace(' ', '-')}"
        self._engine.start(number, errand, folder, lambda phase: progress.phase(f"{said}, {phase}"))

    def _end(self, number: int, ending: Ending | None, progress: Progress) -> None:
        choices = self._running[number]
        if ending is None:
            self._lost_workers[name_of(choices)] += 1
            if self._lost_workers[name_of(choices)] < _LOST:
                self._forget(number)
                return
            ending = Crashed(says=f"its worker was lost {_LOST} times", phase="unknown")
        if isinstance(ending, Cancelled):
            self._forget(number)
            return
        done = self.done()
        if not done and _of_the_workload(ending):
            self._forget(number)
            msg = f"the workload fails before anything is varied: {ending.says} (its output is in {ending.account.log})"
            raise InputError(msg)
        record = record_of(number, choices, ending)
        if number in self._again:
            record = believed(self._again.pop(number), record)
        elif too_good(record, done):
            self._again[number] = record
            self._launch(number, " again", progress)
            return
        del self._running[number]
        self._store.keep(record)
        progress.trial(record, self.done(), max(0.0, self._left_s))
        self._watch_the_device(ending)

    def _forget(self, number: int) -> None:
        del self._running[number]
        self._again.pop(number, None)
        self._store.give_up(number)

    def _watch_the_device(self, ending: Ending) -> None:
        self._lost_devices = self._lost_devices + 1 if isinstance(ending, DeviceLost) else 0
        if isinstance(ending, Unkillable) or self._lost_devices >= _LOST:
            msg = f"the device cannot be relied on any more ({ending.reason}); the study so far is kept, and resumes once it is well"
            raise CannotRunError(msg)


def _of_the_workload(ending: Ending) -> bool:
    """Whether the workload failed by itself: it will in every variant, and is not worth the budget."""
    return isinstance(ending, Refused) and ending.phase in _BEFORE_THE_VARIANT


def too_good(record: TrialRecord, done: Sequence[TrialRecord]) -> bool:
    """Whether a time is so far below all others that a slip of the measurement is likelier than a find."""
    if record.timing is None:
        return False
    others = [trial.timing.median_ms for trial in done if trial.timing]
    return record.timing.median_ms <= 0 or (bool(others) and record.timing.median_ms * _TOO_GOOD < min(others))


def believed(first: TrialRecord, second: TrialRecord) -> TrialRecord:
    """What two processes with the same variant come to: the second ending, or the slower time when they disagree."""
    spent = first.seconds + second.seconds
    if first.timing is None or second.timing is None:
        said = (
            f"a second process, started because {first.timing} looked too good, came to: {second.reason or second.kind}"
        )
        return replace(second, reason=said, seconds=spent)
    if first.timing.median_ms * _AGREES < second.timing.median_ms:
        said = f"a first process came to {first.timing}, which a second one did not confirm"
        return replace(second, again=first.timing, reason=said, seconds=spent)
    return replace(first, again=second.timing, reason=f"confirmed by a second process: {second.timing}", seconds=spent)
