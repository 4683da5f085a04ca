"""Measures every form of a model on the user's example, and returns the best one."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.measure.gc_pause import gc_paused
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome, OptimizeReport
from rocsolid.model.plan import Plan, Tuned
from rocsolid.numerics import detached_copy
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.race import MakeForm, RacedForm, RaceLimits, choose_winner, prepare, raced_forms, run_race
from rocsolid.optimize.warm_start import SavedRun, warm_start
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.regional_compile import RegionalModel, repeated_layers

_FULL_RACE: Final = RaceLimits(seconds=20.0, rounds=15)
_RECHECK: Final = RaceLimits(seconds=2.0, rounds=8)  # the winner of an earlier process against eager only
Capture = Callable[[Callable[..., Any]], Captured]
Forms = Mapping[Form, MakeForm]


class Optimized:
    """The chosen form of a model, called like the model; `report()` shows all forms that were measured."""

    def __init__(self, function: Callable[..., Any], model: Any, report: OptimizeReport) -> None:
        self._function = function
        self._model = model
        self._report = report

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the chosen form."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return str(self.report())

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def report(self) -> OptimizeReport:
        """The forms that were tried, their times and errors, and the choice."""
        return self._report

    @property
    def captured(self) -> Captured | None:
        """The captured function, if the chosen form has a graph; its own report counts replays."""
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
    """Measure every form; `capture` makes a captured function, and is None if there is no GPU to capture on."""
    deadline = time.perf_counter() + budget_s if budget_s is not None else float("inf")
    with warm_start(model, plan, examples, artefacts, traces=capture is not None) as saved:
        expected = [detached_copy(example.call(model)) for example in examples]

        def forms() -> Forms:
            return available_forms(model, plan, capture, budget_s, whole_model=saved.traces.model)

        outcome = _best(forms, saved, partial(race_forms, examples=examples, expected=expected, deadline=deadline))
    report = OptimizeReport(
        name=getattr(model, "__name__", type(model).__name__),
        machine=device_and_versions(),
        profile=plan.profile,
        forms=tuple(raced.result for raced in outcome.forms),
        chosen=outcome.winner.form,
        why=outcome.why,
        noise=outcome.noise,
        examples=len(examples),
    )
    return Optimized(outcome.winner.made, model, report)


def _best(forms: Callable[[], Forms], saved: SavedRun, run: Callable[..., "RaceOutcome"]) -> "RaceOutcome":
    """The winner of an earlier process, if its results still match and it is still fast; otherwise the best of all forms."""
    traces, known = saved.traces, saved.winner
    every = forms()
    if known is not None and known in every:
        with gc_paused():  # collecting garbage among torch's modules takes a tenth of these few seconds
            outcome = run(_only(every, known), limits=_RECHECK, around=traces.around)
        if outcome.winner.form is not Form.EAGER:
            outcome.why += f"; the other forms were measured on {saved.since}, and this one won"
            return outcome
        traces.disable()
        every = forms()
    outcome = run(every, around=traces.around)
    saved.winner = outcome.to_save
    if traces.enabled and outcome.winner.form is Form.COMPILED:
        # Code that was traced for saving lacks guards, and this process would call it directly: compile it again.
        traces.disable()
        outcome = run(_only(forms(), Form.COMPILED))
    return outcome


def _only(every: Forms, form: Form) -> Forms:
    """One form, with eager as the baseline."""
    return {one: every[one] for one in (Form.EAGER, form)}


@dataclass
class RaceOutcome:
    """The result of a race."""

    forms: Sequence[RacedForm]
    winner: RacedForm
    why: str
    noise: float

    @property
    def to_save(self) -> Form | None:
        """The winner, for the next process; None if a form was skipped or nothing was faster than eager."""
        complete = all(raced.result.outcome is not FormOutcome.SKIPPED for raced in self.forms)
        return self.winner.form if complete and self.winner.form is not Form.EAGER else None


def race_forms(
    makers: Forms,
    *,
    examples: Sequence[Example],
    expected: Sequence[Any],
    deadline: float,
    limits: RaceLimits = _FULL_RACE,
    around: Callable[[Form], AbstractContextManager[bool]] = lambda _: nullcontext(False),
) -> RaceOutcome:
    """Prepare the forms, race the eligible ones, and release the graphs of the others.

    `around(form)` is entered while a form is prepared and yields whether it changes how; a form that then fails is prepared once
    more without it.
    """
    forms = raced_forms(makers)
    for raced in forms:
        until = float("inf") if raced.form is Form.EAGER else deadline
        with around(raced.form) as changed:
            prepare(raced, examples, expected, until)
        if changed and raced.result.outcome is FormOutcome.FAILED:
            prepare(raced, examples, expected, until)
    remaining_s = max(1.0, min(limits.seconds, deadline - time.perf_counter()))
    times = run_race(forms, examples, RaceLimits(remaining_s, limits.rounds))
    winner, why = choose_winner(forms, times)
    close_others(forms, winner)
    return RaceOutcome(forms=forms, winner=winner, why=why, noise=times.noise)


def available_forms(
    model: Callable[..., Any],
    plan: Plan,
    capture: Capture | None,
    budget_s: float | None,
    whole_model: Callable[..., Any] | None = None,
) -> Forms:
    """Every form worth measuring, simplest first. The graph of a compiled form is captured from the already compiled one.

    `whole_model` replaces the model where it is compiled as a whole.
    """

    @cache
    def compiled() -> Callable[..., Any]:
        function: Callable[..., Any] = compile_with_plan(plan, whole_model or model, deadline_s=budget_s)
        return function

    @cache
    def regional() -> Callable[..., Any]:
        return RegionalModel(model, lambda forward: compile_with_plan(plan, forward, deadline_s=budget_s))

    every: dict[Form, MakeForm] = {Form.EAGER: lambda: model}
    if repeated_layers(model):
        every[Form.REGIONAL] = regional
    every[Form.COMPILED] = compiled
    if capture is not None:
        every |= {form.with_graph: _captured(capture, make) for form, make in every.items()}
    return _tuned_only(every, plan.tuned) if plan.tuned else every


def _tuned_only(every: Forms, tuned: Tuned) -> Forms:
    """Only eager and the form that won in the tuned plan; every form if that one is not available here."""
    wanted = Form.of(tuned.form, graph=tuned.graph)
    return {form: make for form, make in every.items() if form in (Form.EAGER, wanted)} if wanted in every else every


def _captured(capture: Capture, make: MakeForm) -> Callable[[], Captured]:
    return lambda: capture(make())


def close_others(forms: Sequence[RacedForm], winner: RacedForm, keep: object = None) -> None:
    """Release the graphs of the forms that did not win."""
    for raced in forms:
        if raced is not winner and raced.function is not keep and isinstance(raced.function, Captured):
            raced.function.close()


def device_and_versions() -> str:
    """The device, torch and Python version, for reports."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, torch {torch.__version__}, Python {platform.python_version()}"
