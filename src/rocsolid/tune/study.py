"""A study: try variants, compare the best ones in a final race, and make a plan of the winner."""

import datetime as dt
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from rocsolid.errors import CannotRunError
from rocsolid.measure.process_race import RaceOptions
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.study import Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.tune.effort import Effort, Progress
from rocsolid.tune.engine import Engine
from rocsolid.tune.final_race import choose_winner, select_finalists, summarize_finalist
from rocsolid.tune.screening import Screening
from rocsolid.tune.space import FORM, GRAPH, Space, variant_name
from rocsolid.tune.trials import StudyConfig
from rocsolid.tune.tunableop import read_results

_MIN_RACE_S = 10.0  # time for the final race even if the budget is used up


def run_study(
    config: StudyConfig, screening: Screening, engine: Engine, search: str, effort: Effort, progress: Progress
) -> Study:
    """Try variants until the time or the number of trials is used up, or all were tried; then run the final race."""
    started = time.monotonic()
    stop_reason = screening.run(progress)
    trials = screening.finished()
    selected = select_finalists([trial for trial in trials if _within_limits(trial, effort)], effort.finalists)
    if not selected:
        raise CannotRunError(_nothing_measured(trials))
    left_s = max(_MIN_RACE_S, effort.budget_s - (time.monotonic() - started))
    options = RaceOptions(rounds=effort.rounds, turns=config.turns, budget_s=left_s)
    race, statuses = engine.final_race(
        config, selected, options, lambda text: progress.on_status(f"final comparison: {text}")
    )
    winner, verdict, reason = choose_winner(selected, race, statuses, effort.min_gain)
    finalists = tuple(
        summarize_finalist(trial, selected[0], race, statuses[trial.name], effort.min_gain) for trial in selected
    )
    return Study(
        workload=config.workload,
        profile=config.space.baseline_plan.profile,
        search=search,
        machine=winner.machine,
        knobs={knob.id: knob.values for knob in config.space.knobs},
        trials=tuple(trials),
        finalists=finalists,
        effects=tuple(estimate_effects(config.space, trials)),
        winner=winner.name,
        verdict=verdict,
        reason=reason,
        noise=race.noise,
        best=_make_plan(config, winner, finalists, verdict, race.noise),
        elapsed_s=time.monotonic() - started,
        stop_reason=stop_reason,
    )


def _within_limits(trial: TrialRecord, effort: Effort) -> bool:
    too_large = effort.max_device_bytes and trial.peak_bytes > effort.max_device_bytes
    too_slow = effort.max_setup_s and trial.setup_s > effort.max_setup_s
    return not (too_large or too_slow)


def _nothing_measured(trials: Sequence[TrialRecord]) -> str:
    failures = "".join(f"\n  {trial.name}: {trial.kind}, {trial.reason}" for trial in trials[:3])
    return f"no variant could be measured within the limits{failures or ': no variant was tried'}"


def estimate_effects(space: Space, trials: Sequence[TrialRecord]) -> list[Effect]:
    """Return the effect of each value: the median speedup over all pairs of trials that differ only in this value."""
    times = {trial.name: trial.timing.median_ms for trial in trials if trial.timing}
    log_ratios: dict[tuple[str, str], list[float]] = {}
    values = {(knob.id, str(value)): value for knob in space.knobs for value in knob.values}
    for trial in trials:
        for name, value in trial.choices.items():
            other = variant_name(space.variant({k: v for k, v in trial.choices.items() if k != name}))
            if trial.name in times and other in times:
                log_ratios.setdefault((name, str(value)), []).append(math.log(times[other] / times[trial.name]))
    effects = [
        Effect(id=key[0], value=values.get(key, key[1]), speedup=math.exp(median(logs)), pairs=len(logs))
        for key, logs in log_ratios.items()
    ]
    return sorted(effects, key=lambda effect: -effect.speedup)


def _make_plan(
    config: StudyConfig, winner: TrialRecord, finalists: Sequence[Finalist], verdict: Verdict, noise: float
) -> Plan:
    """Return the plan of the winner, with the measurement and the machine it was tuned on."""
    space = config.space
    choices = {**winner.choices}
    finalist = next(entry for entry in finalists if entry.name == winner.name)
    gain = finalist.against_baseline
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    why = f"Part of the fastest variant of {config.workload} on {winner.machine['device']}, {today}."
    plan = space.plan(choices)
    decisions = tuple(replace(d, why=why) if d.id in choices else d for d in plan)
    tuned = Tuned(
        workload=config.workload,
        form=str(space.value(choices, FORM)),
        graph=bool(space.value(choices, GRAPH)),
        speedup=gain.speedup if gain else 1.0,
        low=gain.low if gain else 1.0,
        high=gain.high if gain else 1.0,
        verdict=verdict.value,
        noise=noise,
        checked=f"{winner.checked}; {finalist.processes + 1} processes",
        device=winner.machine["device"],
        arch=winner.machine["arch"],
        python=winner.machine["python"],
        date=today,
        tunableop=read_results(config.folder, plan),
    )
    return replace(plan, decisions=decisions, torch=winner.machine["torch"], tuned=tuned)
