"""The final race: the best variants take turns in fresh processes, together with a control that is the start a second time."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions, race_processes
from rocsolid.model.study import Finalist, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.tune.trials import StudyConfig, VariantProcess

_MAX_NOISE: Final = 0.10  # above this a result is not reliable
_MAX_SLOWDOWN: Final = 1.5  # a variant slower than this, compared with the best, does not get into the race


@dataclass(frozen=True, kw_only=True)
class FinalistStatus:
    """How a finalist got through the race."""

    processes: int = 1
    failure: str = ""  # why it failed before the race was over


def select_finalists(trials: Sequence[TrialRecord], count: int) -> list[TrialRecord]:
    """The start (or eager, or the fastest, if the start has no time) and the fastest of the others, fewest changes first."""
    measured = [trial for trial in trials if trial.timing is not None]
    if not measured:
        return []
    times = {trial.name: trial.timing.median_ms for trial in measured if trial.timing}
    ranked = sorted(measured, key=lambda trial: times[trial.name])
    start = next((t for t in measured if t.name == "start"), None) or next(
        (t for t in measured if t.choices.get("form") == "eager"), ranked[0]
    )
    close = [t for t in ranked if t is not start and times[t.name] <= _MAX_SLOWDOWN * times[ranked[0].name]]
    return [start, *sorted(close[: count - 1], key=lambda trial: len(trial.choices))]


def run_final_race(
    config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: Callable[[str], None]
) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
    """Race the finalists. All processes have ended when this returns or raises."""
    processes: dict[str, VariantProcess] = {}
    control: VariantProcess | None = None
    restarts = math.ceil(options.rounds / options.restart_every)  # more processes than that would never be used
    setups = min(restarts, max(config.parallel_setups, config.capacity.parallel_setups(finalists)))
    config = replace(config, parallel_setups=setups)
    started = time.monotonic()

    def on_round(number: int, left: Sequence[str]) -> None:
        remaining_s = max(0.0, options.budget_s - (time.monotonic() - started))
        on_status(
            f"round {number + 1} of at most {options.rounds}, {len(left)} variant{'s' * (len(left) != 1)} left, "
            f"at most {remaining_s:.0f} s left"
        )

    try:
        for number, trial in enumerate(finalists):
            processes[trial.name] = VariantProcess(config, trial.choices, f"finalist-{number}", on_status)
        control = VariantProcess(config, finalists[0].choices, "control", on_status)
        race = race_processes(processes, control, options, on_round)
        for process in processes.values():
            process.finish()
        return race, {
            name: FinalistStatus(processes=process.processes, failure=process.failure)
            for name, process in processes.items()
        }
    finally:
        for process in (*processes.values(), *([control] if control else [])):
            process.cancel()


def choose_winner(
    finalists: Sequence[TrialRecord],
    race: ProcessRaceResult,
    statuses: Mapping[str, FinalistStatus],
    min_gain: float,
) -> tuple[TrialRecord, Verdict, str]:
    """The winner, the verdict and the reason. The fastest wins, unless a variant with fewer changes is as fast.

    The finalists come with the fewest changes first.
    """
    valid = [t for t in finalists if t.name in race.samples_ms and not statuses[t.name].failure]
    if not valid:
        return finalists[0], Verdict.UNSURE, "no finalist completed the race"
    start, winner = finalists[0], valid[0]
    for trial in valid[1:]:
        if race.compare(winner.name, trial.name, min_gain).verdict is Verdict.FASTER:
            winner = trial
    noisy = f"equal processes differed by {race.noise:.0%}, so measure again on a quieter machine"
    if winner is start:
        if race.noise > _MAX_NOISE:
            return winner, Verdict.UNSURE, f"no variant is clearly faster than the start, but {noisy}"
        others = [race.compare(start.name, t.name, min_gain).verdict for t in valid if t is not start]
        if Verdict.UNSURE in others:
            return winner, Verdict.UNSURE, f"a noise of {race.noise:.1%} hides whether another variant is faster"
        return winner, Verdict.SAME, "no variant is faster than the start beyond the noise"
    if start.name not in race.samples_ms:
        return winner, Verdict.UNSURE, "the start failed during the race, so there is nothing to compare with"
    gain = race.compare(start.name, winner.name, min_gain)
    reason = (
        f"{gain.speedup:.2f} times as fast as the start [{gain.low:.2f}, {gain.high:.2f}], and its results match eager"
    )
    if race.noise > _MAX_NOISE:
        reason += f"; {noisy}"
    return winner, gain.verdict, reason


def summarize_finalist(
    trial: TrialRecord, start: TrialRecord, race: ProcessRaceResult, status: FinalistStatus, min_gain: float
) -> Finalist:
    """One row of the table of finalists."""
    samples = race.samples_ms.get(trial.name, ())
    comparable = bool(samples) and start.name in race.samples_ms and trial is not start
    saved_ms = 0.0
    if comparable:
        saved_ms = race.timing(start.name).median_ms - race.timing(trial.name).median_ms
    extra_setup_s = trial.setup_s - start.setup_s
    return Finalist(
        name=trial.name,
        timing=race.timing(trial.name) if samples else None,
        against_start=race.compare(start.name, trial.name, min_gain) if comparable else None,
        rounds=len(samples),
        processes=status.processes,
        break_even_calls=math.ceil(max(0.0, extra_setup_s) * 1e3 / saved_ms) if saved_ms > 0 else None,
        failure=status.failure,
    )
