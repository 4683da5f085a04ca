"""A study: try variants one after the other, keep each as soon as it has ended, race the best, and make a plan of the winner."""

import datetime as dt
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from rocsolid.errors import CannotRunError
from rocsolid.measure.process_race import Rules
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.study import Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.tune.effort import Effort, Progress
from rocsolid.tune.engine import Engine
from rocsolid.tune.final_race import finalist, finalists_of, judge
from rocsolid.tune.screening import Screening
from rocsolid.tune.space import FORM, GRAPH, Space, name_of
from rocsolid.tune.trials import Job
from rocsolid.tune.tunableop import results_of


def run_study(job: Job, screening: Screening, engine: Engine, search: str, effort: Effort, progress: Progress) -> Study:
    """Until the budget is spent, the trials are, or nothing is left to try; then the finals."""
    begun = time.monotonic()
    ended = screening.run(progress)
    trials = screening.done()
    allowed = [trial for trial in trials if _affordable(trial, effort)]
    entrants = finalists_of(allowed, effort.finalists)
    if not entrants:
        raise CannotRunError(_nothing_measured(trials))
    left = max(10.0, effort.budget_s - (time.monotonic() - begun))
    rules = Rules(rounds=effort.rounds, turns=job.turns, budget_s=left)
    raced, lanes = engine.finals(job, entrants, rules, progress.phase)
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
        tunableop=results_of(job.folder, plan),
    )
    return replace(plan, decisions=decisions, torch=winner.where["torch"], tuned=tuned)
