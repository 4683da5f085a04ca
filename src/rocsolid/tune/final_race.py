"""The final comparison: the best variants take turns in fresh processes, together with a control.

The control is a second copy of the baseline. It shows how much identical processes differ.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions, race_processes
from rocsolid.model.form import Form
from rocsolid.model.study import Finalist, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.tune.space import BASELINE, FORM
from rocsolid.tune.trials import StudyConfig, VariantProcess

_MAX_NOISE: Final = 0.10  # if processes that run the same variant differ by more than this, the result is not reliable
_MAX_SLOWDOWN: Final = 1.5  # a variant that takes more than this many times the time of the fastest is no finalist


@dataclass(frozen=True, kw_only=True)
class FinalistStatus:
    """Whether a finalist completed the race, and in how many processes."""

    processes: int = 1
    failure: str = ""  # why it failed during the race; empty if it did not


def select_finalists(trials: Sequence[TrialRecord], count: int) -> list[TrialRecord]:
    """Return the baseline, then the fastest of the other variants, those with the fewest changes first.

    If the baseline has no time, eager takes its place, or the fastest variant if eager has no time either.
    """
    measured = [trial for trial in trials if trial.timing is not None]
    if not measured:
        return []
    times = {trial.name: trial.timing.median_ms for trial in measured if trial.timing}
    ranked = sorted(measured, key=lambda trial: times[trial.name])
    baseline = next((t for t in measured if t.name == BASELINE), None) or next(
        (t for t in measured if t.choices.get(FORM) == Form.EAGER.id), ranked[0]
    )
    close = [t for t in ranked if t is not baseline and times[t.name] <= _MAX_SLOWDOWN * times[ranked[0].name]]
    return [baseline, *sorted(close[: count - 1], key=lambda trial: len(trial.choices))]


def run_final_race(
    config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: Callable[[str], None]
) -> tuple[ProcessRaceResult, dict[str, FinalistStatus]]:
    """Race the finalists; the first one is the baseline. All processes have ended when this returns or raises."""
    processes: dict[str, VariantProcess] = {}
    control: VariantProcess | None = None
    needed = math.ceil(options.rounds / options.restart_every)  # processes of each variant in the whole race
    setups = min(needed, max(config.parallel_setups, config.capacity.parallel_setups(finalists)))
    config = replace(config, parallel_setups=setups)
    started = time.monotonic()

    def on_round(index: int, running: Mapping[str, Sequence[float]]) -> None:
        remaining_s = max(0.0, options.budget_s - (time.monotonic() - started))
        on_status(
            f"round {index + 1} of at most {options.rounds}, {len(running)} variant{'s' * (len(running) != 1)} left, "
            f"at most {remaining_s:.0f} s left"
        )

    try:
        for index, trial in enumerate(finalists):
            processes[trial.name] = VariantProcess(config, trial.choices, f"finalist-{index}", on_status)
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
    """Return the winner, the verdict and the reason.

    The winner is the fastest variant, or one with fewer changes that is as fast. `finalists` is sorted by the number of changes.
    """
    valid = [t for t in finalists if t.name in race.samples_ms and not statuses[t.name].failure]
    if not valid:
        return finalists[0], Verdict.UNSURE, "no variant completed the final comparison"
    baseline, winner = finalists[0], valid[0]
    for trial in valid[1:]:
        if race.compare(winner.name, trial.name, min_gain).verdict is Verdict.FASTER:
            winner = trial
    noisy = (
        f"the measurement is noisy (processes that run the same variant differ by {race.noise:.0%}): "
        "measure again on a machine with less other load"
    )
    if winner is baseline:
        if race.noise > _MAX_NOISE:
            return winner, Verdict.UNSURE, f"no variant is clearly faster than the baseline, and {noisy}"
        others = [race.compare(baseline.name, t.name, min_gain).verdict for t in valid if t is not baseline]
        if Verdict.UNSURE in others:
            return (
                winner,
                Verdict.UNSURE,
                f"processes that run the same variant differ by {race.noise:.1%}, so it is not clear whether another variant is faster",
            )
        return winner, Verdict.SAME, "no variant is faster than the baseline by more than the noise"
    if baseline.name not in race.samples_ms:
        return (
            winner,
            Verdict.UNSURE,
            "the baseline failed during the final comparison, so there is nothing to compare with",
        )
    gain = race.compare(baseline.name, winner.name, min_gain)
    reason = f"{gain.speedup:.2f} times as fast as the baseline [{gain.low:.2f}, {gain.high:.2f}], and its results match eager"
    if race.noise > _MAX_NOISE:
        reason += f"; {noisy}"
    return winner, gain.verdict, reason


def summarize_finalist(
    trial: TrialRecord, baseline: TrialRecord, race: ProcessRaceResult, status: FinalistStatus, min_gain: float
) -> Finalist:
    """Return the result of one finalist, compared with the baseline."""
    samples = race.samples_ms.get(trial.name, ())
    comparable = bool(samples) and baseline.name in race.samples_ms and trial is not baseline
    saved_ms = 0.0
    if comparable:
        saved_ms = race.timing(baseline.name).median_ms - race.timing(trial.name).median_ms
    extra_setup_s = trial.setup_s - baseline.setup_s
    return Finalist(
        name=trial.name,
        timing=race.timing(trial.name) if samples else None,
        against_baseline=race.compare(baseline.name, trial.name, min_gain) if comparable else None,
        rounds=len(samples),
        processes=status.processes,
        break_even_calls=math.ceil(max(0.0, extra_setup_s) * 1e3 / saved_ms) if saved_ms > 0 else None,
        failure=status.failure,
    )
