"""How much a study may cost, and who hears how it goes on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocsolid.model.study import TrialRecord


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
    second: str = ""  # `memory` or `setup`: look for variants that are good at this too
