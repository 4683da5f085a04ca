"""How much a study may cost, and the callbacks that report its progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocsolid.model.progress import OnStep, ignore_step
from rocsolid.model.study import TrialRecord


@dataclass(frozen=True, kw_only=True)
class TrialUpdate:
    """Information about a trial that has just ended, and about the study so far."""

    record: TrialRecord
    finished: Sequence[TrialRecord]  # all finished trials, with this one
    max_trials: int
    elapsed_s: float
    left_s: float  # time left for trials; the rest of the budget is for the final comparison


def fastest_so_far(trials: Sequence[TrialRecord]) -> str:
    """Return the fastest trial as text, such as `1.2 ms (inductor.freezing=True)`; "" if none was measured."""
    measured = [(trial.timing.median_ms, trial) for trial in trials if trial.timing]
    if not measured:
        return ""
    fastest = min(measured, key=lambda pair: pair[0])[1]
    return f"{str(fastest.timing).partition(' [')[0]} ({fastest.name})"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Callbacks that report the progress of a study; they do nothing by default."""

    on_status: Callable[[str], None] = lambda _: None  # what runs now, in one line
    on_trial: Callable[[TrialUpdate], None] = lambda _: None
    on_step: OnStep = ignore_step  # the same for an A/B test, which knows how far it is


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The limits of a study: time, number of trials, and what the best variant may cost."""

    budget_s: float = 600.0
    trials: int = 40  # maximum number of trials
    finalists: int = 4  # number of variants in the final comparison, the baseline among them
    rounds: int = 40  # maximum number of rounds of the final comparison
    min_gain: float = 0.02  # a smaller difference counts as none
    max_device_bytes: int = 0  # a variant that uses more device memory is not chosen; 0 is no limit
    max_setup_s: float = 0.0  # a variant that takes longer to set up is not chosen; 0 is no limit
    second_objective: str = ""  # `memory` or `setup`: search for variants that need little of this, too
