"""Sets candidates up, throws out what answers wrongly or fails, races the rest, and names the winner with its reason."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from rocsolid.errors import first_line
from rocsolid.measure.race import Race, race
from rocsolid.measure.statistics import compare
from rocsolid.model.optimize_report import Candidate, Outcome
from rocsolid.model.timing import Verdict
from rocsolid.numerics import error_limit, relative_error
from rocsolid.optimize.example_inputs import Example
from rocsolid.runtime.capture.captured import Captured

_log = logging.getLogger("rocsolid")
EAGER: Final = "eager"


@dataclass(frozen=True)
class Heat:
    """How long a race may be."""

    seconds: float
    rounds: int


@dataclass(kw_only=True)
class Entrant:
    """A candidate on its way."""

    name: str
    make: Callable[[], Callable[..., Any]]
    function: Callable[..., Any] | None = None
    result: Candidate = field(init=False)

    def __post_init__(self) -> None:
        self.result = Candidate(name=self.name, outcome=Outcome.SKIPPED)

    @property
    def form(self) -> Callable[..., Any]:
        """The candidate itself, once it is made."""
        if self.function is None:
            msg = f"{self.name} was not made"
            raise LookupError(msg)
        return self.function

    @property
    def stands(self) -> bool:
        """Whether it may win."""
        return self.function is not None and self.result.outcome is Outcome.SLOWER


def set_up(entrant: Entrant, examples: Sequence[Example], truth: Sequence[Any], deadline: float) -> None:
    """Make the candidate and let it answer every example; it stands when it answers as eager does."""
    if time.perf_counter() > deadline:
        entrant.result = replace(entrant.result, why="the budget was spent")
        return
    begun = time.perf_counter()
    on_device = torch.cuda.is_available()
    if on_device:
        torch.cuda.reset_peak_memory_stats()
    outcome, why, error = Outcome.SLOWER, "", None
    try:
        function = entrant.make()
        for example in examples:
            example.call(function)  # the first call of a captured function is eager
        error = max(relative_error(example.call(function), one) for example, one in zip(examples, truth, strict=True))
        entrant.function = function
        limit = max(error_limit(one) for one in truth)
        if not error <= limit:
            outcome, why = (
                Outcome.WRONG,
                f"its answer is {error:.1%} of its size away from eager's ({limit:.0%} is allowed)",
            )
        elif isinstance(function, Captured) and not function.report().graphs:
            refused = function.report().refusals
            outcome, why = Outcome.FAILED, refused[0].message.splitlines()[0] if refused else "nothing was captured"
    except Exception as failed:  # noqa: BLE001 - whatever a compiler or a library raises, the others go on
        outcome, why = Outcome.FAILED, f"{type(failed).__name__}: {first_line(failed)}"
        _log.warning("%s cannot be used: %s", entrant.name, why)
    entrant.result = replace(
        entrant.result,
        outcome=outcome,
        why=why,
        error=error,
        setup_s=time.perf_counter() - begun,
        peak_bytes=torch.cuda.max_memory_allocated() if on_device else 0,
    )


def run_race(entrants: Sequence[Entrant], examples: Sequence[Example], heat: Heat) -> Race:
    """Let those that stand take turns on all examples; the first of them is eager."""

    def calls(function: Callable[..., Any]) -> Callable[[], None]:
        def call() -> None:
            for example in examples:
                example.call(function)

        return call

    standing = {entrant.name: calls(entrant.form) for entrant in entrants if entrant.stands}
    return race(standing, rounds=heat.rounds, budget_s=heat.seconds)


def judge(entrants: Sequence[Entrant], raced: Race) -> tuple[Entrant, str]:
    """The winner and why: the fastest, unless a simpler one is as fast. Entrants come simplest first."""
    standing = [entrant for entrant in entrants if entrant.stands]
    for entrant in standing:
        entrant.result = replace(
            entrant.result,
            timing=raced.timing(entrant.name),
            against_eager=raced.against_baseline(entrant.name) if entrant.name != raced.baseline else None,
        )
    winner = _fastest(standing, raced)
    winner.result = replace(winner.result, outcome=Outcome.CHOSEN)
    others = [entrant for entrant in standing if entrant is not winner]
    if not others:
        return winner, "no other candidate stood"
    if winner.name == EAGER:
        return winner, "nothing else was faster beyond the noise"
    gained = winner.result.against_eager
    speed = f"{gained.speedup:.2f} times as fast as eager" if gained else "the fastest"
    return winner, f"it is {speed}, and its answer was checked"


def _fastest(standing: Sequence[Entrant], raced: Race) -> Entrant:
    """The fastest, or the first that is not slower than it by more than matters.

    The control is eager run twice, and says how much of a difference *from eager* may be noise. Two graphs are compared by their own
    rounds: they hardly touch the host, whose noise is most of eager's.
    """
    eager, *others = standing
    best = min(standing, key=lambda entrant: raced.timing(entrant.name).median_ms)
    if best is eager or raced.against_baseline(best.name).verdict is not Verdict.FASTER:
        return eager
    rounds = raced.samples_ms
    for entrant in others:
        if entrant is best or compare(rounds[entrant.name], rounds[best.name]).verdict in (
            Verdict.SAME,
            Verdict.SLOWER,
        ):
            return entrant
    return best


def named(entrants: Mapping[str, Callable[[], Callable[..., Any]]]) -> list[Entrant]:
    """Entrants in the order given."""
    return [Entrant(name=name, make=make) for name, make in entrants.items()]
