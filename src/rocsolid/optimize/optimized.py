"""Measures every form of a model on the user's examples, and returns the fastest one with correct results."""

import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.measure.gc_pause import gc_paused
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome, OptimizeReport
from rocsolid.model.plan import Plan, Tuned
from rocsolid.numerics import Tolerance
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.race import (
    Expectation,
    MakeForm,
    RacedForm,
    RaceLimits,
    choose_winner,
    expect,
    prepare,
    raced_forms,
    run_race,
    why_not_comparable,
)
from rocsolid.optimize.warm_start import SavedRun, warm_start
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.regional_compile import RegionalModel, repeated_layers

_log = logging.getLogger("rocsolid")
_FULL_RACE: Final = RaceLimits(seconds=20.0, rounds=15)
_RECHECK: Final = RaceLimits(seconds=2.0, rounds=8)  # compares the fastest form of an earlier process with eager
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
        return f"<Optimized {str(self.report()).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def report(self) -> OptimizeReport:
        """Return the forms that were tried, with their times and errors, and the chosen one."""
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
    tolerance: Tolerance = Tolerance(),  # noqa: B008 - frozen
) -> Optimized:
    """Measure every form and return the chosen one; `capture` captures a function as a graph, and is None without a GPU."""
    deadline = time.perf_counter() + budget_s if budget_s is not None else float("inf")
    with warm_start(model, plan, examples, artefacts, traces=capture is not None) as saved:
        expected = expect(model, examples, tolerance)

        def forms() -> Forms:
            return available_forms(model, plan, capture, budget_s, whole_model=saved.traces.model)

        outcome = _recheck_or_race(
            forms, saved, partial(race_forms, examples=examples, expected=expected, deadline=deadline)
        )
    report = OptimizeReport(
        name=getattr(model, "__name__", type(model).__name__),
        machine=device_and_versions(),
        profile=plan.profile,
        forms=tuple(raced.result for raced in outcome.forms),
        chosen=outcome.winner.form,
        why=outcome.why,
        noise=outcome.noise,
        example_count=len(examples),
    )
    return Optimized(outcome.winner.made, model, report)


def _recheck_or_race(
    make_forms: Callable[[], Forms], saved: SavedRun, run: Callable[..., "RaceOutcome"]
) -> "RaceOutcome":
    """Return the fastest form of an earlier process if it is still correct and faster than eager; otherwise measure all forms."""
    traces, saved_winner = saved.traces, saved.winner
    forms = make_forms()
    if saved_winner is not None and saved_winner in forms:
        with gc_paused():  # a garbage collection after the import of torch would take a tenth of these few seconds
            outcome = run(_with_eager(forms, saved_winner), limits=_RECHECK, tracing=traces.tracing)
        if outcome.winner.form is not Form.EAGER:
            outcome.why += f"; the other forms were measured on {saved.race_date} and were not faster"
            return outcome
        traces.disable()
        forms = make_forms()
    outcome = run(forms, tracing=traces.tracing)
    saved.winner = outcome.winner_to_save
    if traces.enabled and outcome.winner.form is Form.COMPILED:
        # Code that was traced for saving lacks guards, and without a graph this process would run it in every call: compile it again.
        traces.disable()
        outcome = run(_with_eager(make_forms(), Form.COMPILED))
    return outcome


def _with_eager(forms: Forms, form: Form) -> Forms:
    """Return only one form, and eager as the baseline."""
    return {kept: forms[kept] for kept in (Form.EAGER, form)}


@dataclass
class RaceOutcome:
    """The result of a race between forms."""

    forms: Sequence[RacedForm]
    winner: RacedForm
    why: str
    noise: float

    @property
    def winner_to_save(self) -> Form | None:
        """The fastest form, for the next process; None if a form was skipped or no form was faster than eager."""
        complete = all(raced.result.outcome is not FormOutcome.SKIPPED for raced in self.forms)
        return self.winner.form if complete and self.winner.form is not Form.EAGER else None


def race_forms(
    makers: Forms,
    *,
    examples: Sequence[Example],
    expected: Sequence[Expectation],
    deadline: float,
    limits: RaceLimits = _FULL_RACE,
    tracing: Callable[[Form], AbstractContextManager[bool]] = lambda _: nullcontext(False),
) -> RaceOutcome:
    """Prepare the forms, race the eligible ones, and release the graphs of the others.

    A form is prepared inside `tracing(form)`, which yields whether Dynamo traces are saved or used. If they are and the form fails, it
    is prepared once more without them.
    """
    forms = raced_forms(makers)
    for raced in forms:
        form_deadline = float("inf") if raced.form is Form.EAGER else deadline
        with tracing(raced.form) as uses_traces:
            prepare(raced, examples, expected, form_deadline)
        if uses_traces and raced.result.outcome is FormOutcome.FAILED:
            prepare(raced, examples, expected, form_deadline)
        if raced.form is Form.EAGER and (why := why_not_comparable(raced)):
            raced.function = raced.make()
            raced.result = replace(raced.result, outcome=FormOutcome.CHOSEN, why=why)
            _log.warning("%s", why)
            return RaceOutcome(forms=forms, winner=raced, why=why, noise=0.0)
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
    """Return every form that this model supports, simplest first. A compiled form and its graph share one compiled function.

    `whole_model` is compiled instead of `model` for the forms that compile the whole model.
    """

    @cache
    def compiled() -> Callable[..., Any]:
        function: Callable[..., Any] = compile_with_plan(plan, whole_model or model, deadline_s=budget_s)
        return function

    @cache
    def regional() -> Callable[..., Any]:
        return RegionalModel(model, lambda forward: compile_with_plan(plan, forward, deadline_s=budget_s))

    forms: dict[Form, MakeForm] = {Form.EAGER: lambda: model}
    if repeated_layers(model):
        forms[Form.REGIONAL] = regional
    forms[Form.COMPILED] = compiled
    if capture is not None:
        forms |= {form.with_graph: _make_captured(capture, make) for form, make in forms.items()}
    return _tuned_only(forms, plan.tuned) if plan.tuned else forms


def _tuned_only(forms: Forms, tuned: Tuned) -> Forms:
    """Return only eager and the form of the tuned plan; all forms if the form of the plan is not available."""
    tuned_form = Form.of(tuned.form, graph=tuned.graph)
    return _with_eager(forms, tuned_form) if tuned_form in forms else forms


def _make_captured(capture: Capture, make: MakeForm) -> Callable[[], Captured]:
    return lambda: capture(make())


def close_others(forms: Sequence[RacedForm], winner: RacedForm, keep: object = None) -> None:
    """Release the graphs of the forms that were not chosen, except that of the function `keep`."""
    for raced in forms:
        if raced is not winner and raced.function is not keep and isinstance(raced.function, Captured):
            raced.function.close()


def device_and_versions() -> str:
    """Return the device, the torch version and the Python version, for reports."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, torch {torch.__version__}, Python {platform.python_version()}"
