"""A study: try variants one after the other, keep each as soon as it has ended, race the best, and make a plan of the winner."""

import datetime as dt
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from rocsolid.errors import CannotRunError, InputError
from rocsolid.measure.knockout import Rules
from rocsolid.model.ending import Cancelled, DeviceLost, Ending, Refused, Unkillable
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.study import Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.tune.finals import finalist, finalists_of, judge, run_finals
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.search import Next
from rocsolid.tune.space import FORM, GRAPH, Choices, Space, name_of
from rocsolid.tune.store import Store
from rocsolid.tune.trials import Job, record_of

_FOR_TRIALS: Final = 0.7  # of the budget; the rest is for the race
_SHORTEST_S: Final = 30.0  # what a trial is given even when the budget is nearly spent
_LOOK_AGAIN_S: Final = 0.2
_BEFORE_THE_VARIANT: Final = ("import", "build")  # phases in which only the workload's own code runs
_LOST: Final = 2  # devices lost in a row, after which a study does not go on


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Who hears how a study goes on; by default nobody."""

    phase: Callable[[str], None] = lambda _: None
    trial: Callable[[TrialRecord, Sequence[TrialRecord], float], None] = lambda *_: (
        None
    )  # with all so far, and seconds left


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much a study may cost."""

    budget_s: float = 600.0
    trials: int = 40
    finalists: int = 4
    rounds: int = 40
    least_gain: float = 0.02
    device_bytes: int = 0  # variants that take more are not chosen; 0 is no limit
    setup_s: float = 0.0  # likewise


def run_study(job: Job, search: str, following: Next, store: Store, effort: Effort, progress: Progress) -> Study:
    """Until the budget is spent, the trials are, or nothing is left to try; then the finals."""
    begun = time.monotonic()
    ended = _screen(job, following, store, effort, progress, begun)
    trials = _done(job, store)
    allowed = [trial for trial in trials if _affordable(trial, effort)]
    entrants = finalists_of(allowed, effort.finalists)
    if not entrants:
        raise CannotRunError(_nothing_measured(trials))
    left = max(10.0, effort.budget_s - (time.monotonic() - begun))
    rules = Rules(rounds=effort.rounds, budget_s=left)
    raced, lanes = run_finals(job, entrants, rules, progress.phase)
    winner, verdict, why = judge(entrants, raced, lanes, effort.least_gain)
    table = tuple(finalist(t, entrants[0], raced, lanes[t.name], effort.least_gain) for t in entrants)
    return Study(
        workload=job.workload,
        profile=job.space.start.profile,
        search=search,
        where=winner.where,
        knobs={knob.id: knob.values for knob in job.space.knobs},
        trials=tuple(trials),
        finalists=table,
        effects=tuple(effects_of(job.space, trials)),
        winner=winner.name,
        verdict=verdict,
        why=why,
        noise=raced.noise,
        best=_plan(job, winner, table, verdict, raced.noise),
        spent_s=time.monotonic() - begun,
        ended=ended,
    )


def _screen(job: Job, following: Next, store: Store, effort: Effort, progress: Progress, begun: float) -> str:
    """Try variants; returns why there were no more."""
    lost = 0
    while True:
        done = _done(job, store)
        left = _FOR_TRIALS * effort.budget_s - (time.monotonic() - begun)
        if len(done) >= effort.trials:
            return f"{effort.trials} trials were allowed"
        if left <= 0 and done:
            return "the budget for trials was spent"
        choices = following(done)
        if choices is None:
            return "nothing was left to try"
        number = store.claim(name_of(choices))
        if number is None:  # it will be among those done soon, or free again
            progress.phase(f"waiting for another tuner, which tries {name_of(choices)}")
            time.sleep(_LOOK_AGAIN_S)
            continue
        progress.phase(f"trial {number}: {name_of(choices)}")
        within = max(_SHORTEST_S, effort.budget_s - (time.monotonic() - begun))
        bounded = replace(job, limits=replace(job.limits, total_s=min(job.limits.total_s, within)))
        ending = _try(bounded, store, number, choices, progress)
        if not done and _of_the_workload(ending):
            store.give_up(number)
            msg = f"the workload fails before anything is varied: {ending.says} (its output is in {ending.account.log})"
            raise InputError(msg)
        store.keep(record := record_of(number, choices, ending))
        progress.trial(record, _done(job, store), max(0.0, left - record.seconds))
        lost = lost + 1 if isinstance(ending, DeviceLost) else 0
        if isinstance(ending, Unkillable) or lost >= _LOST:
            msg = f"the device cannot be relied on any more ({ending.reason}); the study so far is kept, and resumes once it is well"
            raise CannotRunError(msg)


def _done(job: Job, store: Store) -> list[TrialRecord]:
    """What this study has tried of the space as it is now."""
    return [trial for trial in store.done() if job.space.holds(trial.choices)]


def _of_the_workload(ending: Ending) -> bool:
    """Whether the workload failed by itself: it will in every variant, and is not worth the budget."""
    return isinstance(ending, Refused) and ending.phase in _BEFORE_THE_VARIANT


def _try(job: Job, store: Store, number: int, choices: Choices, progress: Progress) -> Ending:
    """One trial; when it is interrupted it counts as not tried."""
    finished = False
    try:
        chosen = job.space.variant(choices)
        ending = run(
            job.errand(chosen),
            job.folder / "trials" / f"{number}",
            lambda phase: progress.phase(f"trial {number}: {name_of(chosen)}, {phase}"),
        )
        finished = not isinstance(ending, Cancelled)
        return ending
    finally:
        if not finished:
            store.give_up(number)


def _affordable(trial: TrialRecord, effort: Effort) -> bool:
    too_large = effort.device_bytes and trial.peak_bytes > effort.device_bytes
    too_slow = effort.setup_s and trial.setup_s > effort.setup_s
    return not (too_large or too_slow)


def _nothing_measured(trials: Sequence[TrialRecord]) -> str:
    seen = "; ".join(f"{trial.name}: {trial.kind}, {trial.reason}" for trial in trials[:3])
    return f"no variant could be measured within the limits ({seen or 'none was tried'})"


def effects_of(space: Space, trials: Sequence[TrialRecord]) -> list[Effect]:
    """What each value is worth: over all pairs of trials that differ in nothing else, the middle of the ratios."""
    times = {trial.name: trial.timing.median_ms for trial in trials if trial.timing}
    ratios: dict[tuple[str, str], list[float]] = {}
    values = {(knob.id, str(value)): value for knob in space.knobs for value in knob.values}
    for trial in trials:
        for name, value in trial.choices.items():
            without = space.variant({k: v for k, v in trial.choices.items() if k != name})
            if trial.name in times and (other := name_of(without)) in times:
                ratios.setdefault((name, str(value)), []).append(math.log(times[other] / times[trial.name]))
    found = [
        Effect(id=key[0], value=values.get(key, key[1]), speedup=math.exp(median(logs)), pairs=len(logs))
        for key, logs in ratios.items()
    ]
    return sorted(found, key=lambda effect: -effect.speedup)


def _plan(job: Job, winner: TrialRecord, table: Sequence[Finalist], verdict: Verdict, noise: float) -> Plan:
    """The winner's values, each with what was measured, and what the plan is tied to."""
    space = job.space
    chosen = {**winner.choices}
    row = next(line for line in table if line.name == winner.name)
    gain = row.against_start
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    why = f"Part of the fastest variant of {job.workload} on {winner.where['device']}, {today}."
    plan = space.plan(chosen)
    decisions = tuple(replace(d, why=why) if d.id in chosen else d for d in plan)
    tuned = Tuned(
        workload=job.workload,
        form=str(space.value(chosen, FORM)),
        graph=bool(space.value(chosen, GRAPH)),
        speedup=gain.speedup if gain else 1.0,
        low=gain.low if gain else 1.0,
        high=gain.high if gain else 1.0,
        verdict=verdict.value,
        noise=noise,
        checked=f"{winner.checked}; {row.processes + 1} processes",
        device=winner.where["device"],
        arch=winner.where["arch"],
        python=winner.where["python"],
        date=today,
    )
    return replace(plan, decisions=decisions, torch=winner.where["torch"], tuned=tuned)
