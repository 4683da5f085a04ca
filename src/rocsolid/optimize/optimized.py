"""From a model to its fast form: every way there is, measured on the user's own example, and the best kept."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.measure.garbage import garbage_left_alone
from rocsolid.model.optimized import OptimizeReport, Outcome
from rocsolid.model.plan import Plan, Tuned
from rocsolid.optimize.contest import EAGER, Entrant, Heat, judge, named, run_race, set_up
from rocsolid.optimize.examples import Example
from rocsolid.optimize.warm_start import warm_start
from rocsolid.runtime.answers import kept
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.compiled import compiled_with
from rocsolid.runtime.regions import Regional, repeated_regions

_AMONG_ALL: Final = Heat(seconds=20.0, rounds=15)
_AGAIN: Final = Heat(seconds=2.0, rounds=8)  # of one that has won before, against eager alone
Capture = Callable[[Callable[..., Any]], Captured]


class Optimized:
    """The chosen form of a model, called like the model; `report()` says what else was tried."""

    def __init__(self, function: Callable[..., Any], model: Any, report: OptimizeReport) -> None:
        self._function = function
        self._model = model
        self._report = report

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call as the model would."""
        return self._function(*args, **kwargs)

    def report(self) -> OptimizeReport:
        """What was tried, measured and chosen."""
        return self._report

    @property
    def captured(self) -> Captured | None:
        """The captured function inside, when one was chosen: its own report counts replays."""
        return self._function if isinstance(self._function, Captured) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(self._model, name)


def optimized(
    model: Callable[..., Any],
    examples: Sequence[Example],
    plan: Plan,
    *,
    capture: Capture | None,
    budget_s: float | None,
    artefacts: Path | None = None,
) -> Optimized:
    """Try every candidate; `capture` makes a captured function, and is None where there is nothing to capture on."""
    deadline = time.perf_counter() + budget_s if budget_s is not None else float("inf")
    with warm_start(model, plan, examples, artefacts) as before:
        truth = [kept(example.call(model)) for example in examples]
        forms = candidates(model, plan, capture, budget_s)
        outcome = None
        if before.winner in forms:
            again = {name: forms[name] for name in (EAGER, before.winner)}
            with garbage_left_alone():  # of a few seconds, looking for cycles among torch's modules takes a tenth
                outcome = contested(again, examples, truth, deadline, heat=_AGAIN)
        if outcome is None or outcome.winner.name == EAGER:
            outcome = contested(forms, examples, truth, deadline)
            before.winner = outcome.to_remember
        else:
            outcome.why += f"; the other forms were tried on {before.since}, and this one won"
    report = OptimizeReport(
        name=getattr(model, "__name__", type(model).__name__),
        where=whereabouts(),
        profile=plan.profile,
        candidates=tuple(entrant.result for entrant in outcome.entrants),
        chosen=outcome.winner.name,
        why=outcome.why,
        noise=outcome.noise,
        examples=len(examples),
    )
    return Optimized(outcome.winner.form, model, report)


@dataclass
class Contest:
    """How a race ended."""

    entrants: Sequence[Entrant]
    winner: Entrant
    why: str
    noise: float

    @property
    def to_remember(self) -> str:
        """The winner, for the next process; nothing when it won because something could not be tried, or by noise."""
        everybody = all(entrant.result.outcome is not Outcome.SKIPPED for entrant in self.entrants)
        return self.winner.name if everybody and self.winner.name != EAGER else ""


def contested(
    forms: Mapping[str, Callable[[], Callable[..., Any]]],
    examples: Sequence[Example],
    truth: Sequence[Any],
    deadline: float,
    heat: Heat = _AMONG_ALL,
) -> Contest:
    """Set the forms up, race those that answer rightly, and give back what the others hold."""
    entrants = named(forms)
    for entrant in entrants:
        set_up(entrant, examples, truth, float("inf") if entrant.name == EAGER else deadline)
    left = max(1.0, min(heat.seconds, deadline - time.perf_counter()))
    raced = run_race(entrants, examples, Heat(left, heat.rounds))
    winner, why = judge(entrants, raced)
    closing_others(entrants, winner)
    return Contest(entrants=entrants, winner=winner, why=why, noise=raced.noise)


def candidates(
    model: Callable[..., Any], plan: Plan, capture: Capture | None, budget_s: float | None
) -> Mapping[str, Callable[[], Callable[..., Any]]]:
    """Every form worth trying, simplest first. A graph of a compiled form is made from the one that is compiled already."""

    @cache
    def whole() -> Callable[..., Any]:
        compiled: Callable[..., Any] = compiled_with(plan, model, deadline_s=budget_s)
        return compiled

    @cache
    def by_region() -> Callable[..., Any]:
        return Regional(model, lambda forward: compiled_with(plan, forward, deadline_s=budget_s))

    plain: dict[str, Callable[[], Callable[..., Any]]] = {EAGER: lambda: model}
    if repeated_regions(model):
        plain["compiled by region"] = by_region
    plain["compiled"] = whole
    every = dict(plain)
    if capture is not None:
        every |= {f"{name}, graph": _captured(capture, make) for name, make in plain.items()}
    return _tuned_only(every, plan.tuned) if plan.tuned else every


def _tuned_only(
    every: Mapping[str, Callable[[], Callable[..., Any]]], tuned: Tuned
) -> Mapping[str, Callable[[], Callable[..., Any]]]:
    """Of a tuned plan only the form that won, beside eager; all of them where it cannot be had here."""
    form = {"regional": "compiled by region"}.get(tuned.form, tuned.form)
    wanted = f"{form}, graph" if tuned.graph else form
    return {name: make for name, make in every.items() if name in (EAGER, wanted)} if wanted in every else every


def _captured(capture: Capture, make: Callable[[], Callable[..., Any]]) -> Callable[[], Captured]:
    return lambda: capture(make())


def closing_others(entrants: Sequence[Entrant], winner: Entrant, keep: object = None) -> None:
    """Give back the graphs of those that did not win."""
    for entrant in entrants:
        if entrant is not winner and entrant.function is not keep and isinstance(entrant.function, Captured):
            entrant.function.close()


def whereabouts() -> str:
    """Device and versions."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, torch {torch.__version__}, Python {platform.python_version()}"
