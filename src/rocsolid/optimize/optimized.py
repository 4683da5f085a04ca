"""From a model to its fast form: every way there is, measured on the user's own example, and the best detached_copy."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.measure.gc_pause import gc_disabled
from rocsolid.model.optimize_report import OptimizeReport, Outcome
from rocsolid.model.plan import Plan, Tuned
from rocsolid.numerics import detached_copy
from rocsolid.optimize.dynamo_traces import WHOLE
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.race import EAGER, Entrant, Heat, judge, named, run_race, set_up
from rocsolid.optimize.warm_start import Kept, warm_start
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.compiled import compiled_with
from rocsolid.runtime.regional_compile import Regional, repeated_regions

_AMONG_ALL: Final = Heat(seconds=20.0, rounds=15)
_AGAIN: Final = Heat(seconds=2.0, rounds=8)  # of one that has won before, against eager alone
Capture = Callable[[Callable[..., Any]], Captured]
Forms = Mapping[str, Callable[[], Callable[..., Any]]]


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
    with warm_start(model, plan, examples, artefacts, traces=capture is not None) as before:
        truth = [detached_copy(example.call(model)) for example in examples]

        def forms() -> Forms:
            return candidates(model, plan, capture, budget_s, whole_model=before.traces.model)

        outcome = _best(forms, before, partial(contested, examples=examples, truth=truth, deadline=deadline))
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


def _best(forms: Callable[[], Forms], before: Kept, contest: Callable[..., "Contest"]) -> "Contest":
    """The form that won before, if it still answers rightly and fast; otherwise the best of all."""
    traces, known = before.traces, before.winner
    every = forms()
    if known in every:
        with gc_disabled():  # of a few seconds, looking for cycles among torch's modules takes a tenth
            outcome = contest(_beside_eager(every, known), heat=_AGAIN, around=traces.around)
        if outcome.winner.name != EAGER:
            outcome.why += f"; the other forms were tried on {before.since}, and this one won"
            return outcome
        traces.give_up()
        every = forms()
    outcome = contest(every, around=traces.around)
    before.winner = outcome.to_remember
    if traces.wanted and outcome.winner.name == WHOLE:
        traces.give_up()  # what is traced for another process lacks guards, and this one calls what was compiled
        outcome = contest(_beside_eager(forms(), WHOLE))
    return outcome


def _beside_eager(every: Forms, name: str) -> Forms:
    return {one: every[one] for one in (EAGER, name)}


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
    forms: Forms,
    *,
    examples: Sequence[Example],
    truth: Sequence[Any],
    deadline: float,
    heat: Heat = _AMONG_ALL,
    around: Callable[[str], AbstractContextManager[bool]] = lambda _: nullcontext(False),
) -> Contest:
    """Set the forms up, race those that answer rightly, and give back what the others hold.

    `around` says whether it changes how a form is set up; one that fails then is set up once more, without.
    """
    entrants = named(forms)
    for entrant in entrants:
        until = float("inf") if entrant.name == EAGER else deadline
        with around(entrant.name) as changed:
            set_up(entrant, examples, truth, until)
        if changed and entrant.result.outcome is Outcome.FAILED:
            set_up(entrant, examples, truth, until)
    left = max(1.0, min(heat.seconds, deadline - time.perf_counter()))
    raced = run_race(entrants, examples, Heat(left, heat.rounds))
    winner, why = judge(entrants, raced)
    closing_others(entrants, winner)
    return Contest(entrants=entrants, winner=winner, why=why, noise=raced.noise)


def candidates(
    model: Callable[..., Any],
    plan: Plan,
    capture: Capture | None,
    budget_s: float | None,
    whole_model: Callable[..., Any] | None = None,
) -> Forms:
    """Every form worth trying, simplest first. A graph of a compiled form is made from the one that is compiled already.

    `whole_model` is what stands for the model where it is compiled as a whole.
    """

    @cache
    def whole() -> Callable[..., Any]:
        compiled: Callable[..., Any] = compiled_with(plan, whole_model or model, deadline_s=budget_s)
        return compiled

    @cache
    def by_region() -> Callable[..., Any]:
        return Regional(model, lambda forward: compiled_with(plan, forward, deadline_s=budget_s))

    plain: dict[str, Callable[[], Callable[..., Any]]] = {EAGER: lambda: model}
    if repeated_regions(model):
        plain["compiled by region"] = by_region
    plain[WHOLE] = whole
    every = dict(plain)
    if capture is not None:
        every |= {f"{name}, graph": _captured(capture, make) for name, make in plain.items()}
    return _tuned_only(every, plan.tuned) if plan.tuned else every


def _tuned_only(every: Forms, tuned: Tuned) -> Forms:
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
