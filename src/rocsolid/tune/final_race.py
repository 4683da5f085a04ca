"""The race at the end: the best variants, each in processes of its own, take turns with a control that is the start again."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocsolid.measure.process_race import Knockout, Rules, knockout
from rocsolid.model.study import Finalist, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.tune.trials import Job, Resident

_RESTLESS: Final = 0.10  # noise beyond which a figure is not to be relied on
_HOPELESS: Final = 1.5  # times as slow as the best


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a finalist came through the race."""

    processes: int = 1
    out: str = ""  # why it ended before the race did


def finalists_of(trials: Sequence[TrialRecord], most: int) -> list[TrialRecord]:
    """Who goes to the finals: the start, or what stands in for it, and the fastest of the others, simplest first."""
    measured = [trial for trial in trials if trial.timing is not None]
    if not measured:
        return []
    times = {trial.name: trial.timing.median_ms for trial in measured if trial.timing}
    ranked = sorted(measured, key=lambda trial: times[trial.name])
    start = next((t for t in measured if t.name == "start"), None) or next(
        (t for t in measured if t.choices.get("form") == "eager"), ranked[0]
    )
    near = [t for t in ranked if t is not start and times[t.name] <= _HOPELESS * times[ranked[0].name]]
    return [start, *sorted(near[: most - 1], key=lambda trial: len(trial.choices))]


def run_finals(
    job: Job, entrants: Sequence[TrialRecord], rules: Rules, told: Callable[[str], None]
) -> tuple[Knockout, dict[str, Standing]]:
    """Race them; every process has ended when this returns, however it returns."""
    lanes: dict[str, Resident] = {}
    control: Resident | None = None
    lives = math.ceil(rules.rounds / rules.renew_every)  # more would wait for a turn that never comes
    job = replace(job, at_once=min(lives, max(job.at_once, job.room.at_once(entrants))))
    try:
        for number, trial in enumerate(entrants):
            lanes[trial.name] = Resident(job, trial.choices, f"finalist-{number}", told)
        control = Resident(job, entrants[0].choices, "control", told)
        raced = knockout(
            lanes, control, rules, lambda number, left: told(f"round {number + 1}, {len(left)} still in the race")
        )
        for lane in lanes.values():
            lane.finish()
        return raced, {name: Standing(processes=lane.processes, out=lane.out) for name, lane in lanes.items()}
    finally:
        for lane in (*lanes.values(), *([control] if control else [])):
            lane.cancel()


def judge(
    entrants: Sequence[TrialRecord], raced: Knockout, lanes: Mapping[str, Standing], least_gain: float
) -> tuple[TrialRecord, Verdict, str]:
    """The winner: the fastest, unless a simpler one is as fast. Entrants come simplest first."""
    standing = [t for t in entrants if t.name in raced.samples_ms and not lanes[t.name].out]
    if not standing:
        return entrants[0], Verdict.UNSURE, "no finalist lasted through the race"
    start, winner = entrants[0], standing[0]
    for trial in standing[1:]:
        if raced.beside(winner.name, trial.name, least_gain).verdict is Verdict.FASTER:
            winner = trial
    restless = f"equal processes differed by {raced.noise:.0%}, so measure again on a quieter machine"
    if winner is start:
        if raced.noise > _RESTLESS:
            return winner, Verdict.UNSURE, f"nothing else was surely faster, but {restless}"
        others = [raced.beside(start.name, t.name, least_gain).verdict for t in standing if t is not start]
        if Verdict.UNSURE in others:
            return winner, Verdict.UNSURE, f"the noise of {raced.noise:.1%} hides whether another is faster"
        return winner, Verdict.SAME, "nothing else was faster beyond the noise"
    if start.name not in raced.samples_ms:
        return winner, Verdict.UNSURE, "the start did not last through the race"
    gained = raced.beside(start.name, winner.name, least_gain)
    said = f"{gained.speedup:.2f} times as fast as the start [{gained.low:.2f}, {gained.high:.2f}], and its answer was checked"
    if raced.noise > _RESTLESS:
        said += f"; {restless}"
    return winner, gained.verdict, said


def finalist(trial: TrialRecord, start: TrialRecord, raced: Knockout, lane: Standing, least_gain: float) -> Finalist:
    """One line of the final table."""
    samples = raced.samples_ms.get(trial.name, ())
    both = bool(samples) and start.name in raced.samples_ms and trial is not start
    saved_ms = 0.0
    if both:
        saved_ms = raced.timing(start.name).median_ms - raced.timing(trial.name).median_ms
    dearer_s = trial.setup_s - start.setup_s
    return Finalist(
        name=trial.name,
        timing=raced.timing(trial.name) if samples else None,
        against_start=raced.beside(start.name, trial.name, least_gain) if both else None,
        rounds=len(samples),
        processes=lane.processes,
        break_even_calls=math.ceil(max(0.0, dearer_s) * 1e3 / saved_ms) if saved_ms > 0 else None,
        out=lane.out,
    )
