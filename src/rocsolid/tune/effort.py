"""How much a study may cost, and the callbacks that report its progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocsolid.model.study import TrialRecord


@dataclass(frozen=True, kw_only=True)
class TrialUpdate:
    """A trial has ended."""

    record: TrialRecord
    finished: Sequence[TrialRecord]  # all trials so far
    max_trials: int
    elapsed_s: float
    left_s: float  # for trials; the rest of the budget is for the final race


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Callbacks that report the progress of a study; they do nothing by default."""

    on_status: Callable[[str], None] = lambda _: None  # what runs now, in one line
    on_trial: Callable[[TrialUpdate], None] = lambda _: None


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much a study may cost."""

    budget_s: float = 600.0
    trials: int = 40  # at most
    finalists: int = 4
    rounds: int = 40  # of the final race, at most
    min_gain: float = 0.02  # a smaller difference counts as none
    max_device_bytes: int = 0  # a variant that uses more device memory cannot win; 0 is no limit
    max_setup_s: float = 0.0  # a variant that takes longer to set up cannot win; 0 is no limit
    second_objective: str = ""  # `memory` or `setup`: search for variants that are good at this too
