"""Prepares the forms of a model, excludes those that fail or return wrong results, measures the rest together, and chooses the fastest."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch

from rocsolid.errors import first_line
from rocsolid.measure.race import Race, race
from rocsolid.measure.statistics import compare
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome, FormResult
from rocsolid.model.progress import OnStep, Step, ignore_step
from rocsolid.model.timing import Verdict
from rocsolid.numerics import error_limit, relative_error
from rocsolid.optimize.example_inputs import Example, ExampleRun
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.regional_compile import compile_states
from rocsolid.torchapi.dynamo.compile_hooks import CompiledRuns

_log = logging.getLogger("rocsolid")
MakeForm = Callable[[], Callable[..., Any]]


@dataclass(frozen=True)
class RaceLimits:
    """The limits of a race."""

    seconds: float
    rounds: int


@dataclass(kw_only=True)
class RacedForm:
    """A form in a race: how to make it, its function (None until it is made), and its result so far."""

    form: Form
    make: MakeForm
    function: Callable[..., Any] | None = None
    result: FormResult = field(init=False)

    def __post_init__(self) -> None:
        self.result = FormResult(form=self.form, outcome=FormOutcome.SKIPPED)

    @property
    def made(self) -> Callable[..., Any]:
        """The function; raises LookupError if it was not made."""
        if self.function is None:
            msg = f"the form {self.form.label!r} was not made"
            raise LookupError(msg)
        return self.function

    @property
    def eligible(self) -> bool:
        """Whether the form was made and its results are correct, so that it can be measured and chosen."""
        return self.function is not None and self.result.outcome is FormOutcome.NOT_CHOSEN


def raced_forms(makers: Mapping[Form, MakeForm]) -> list[RacedForm]:
    """Return a `RacedForm` for each form, in the given order."""
    return [RacedForm(form=form, make=make) for form, make in makers.items()]


def prepare(raced: RacedForm, examples: Sequence[Example], expected: Sequence[ExampleRun], deadline: float) -> None:
    """Make the form and run every example. The form is eligible if its results match `expected`, the runs of eager."""
    if time.perf_counter() > deadline:
        raced.result = replace(raced.result, why="no time was left in the budget")
        return
    started = time.perf_counter()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    outcome, why, error = FormOutcome.NOT_CHOSEN, "", None
    try:
        function = raced.make()
        with CompiledRuns() as compiled_runs:
            for example in examples:
                example.run(function)  # the first call of a captured function runs in eager
            runs = [example.run(function) for example in examples]
        error = max(_run_error(run, wanted) for run, wanted in zip(runs, expected, strict=True))
        raced.function = function
        limit = max(error_limit((wanted.result, wanted.written)) for wanted in expected)
        if any(run.written.keys() != wanted.written.keys() for run, wanted in zip(runs, expected, strict=True)):
            outcome, why = FormOutcome.WRONG, "it does not write to the same arguments as eager"
        elif not error <= limit:
            outcome, why = FormOutcome.WRONG, f"relative error {error:.1%} compared with eager, {limit:.0%} is allowed"
        elif isinstance(function, Captured) and not function.report().graphs:
            refusals = function.report().refusals
            outcome, why = (
                FormOutcome.FAILED,
                refusals[0].message.splitlines()[0] if refusals else "nothing was captured",
            )
        else:
            outcome, why = _check_compiled(raced, function, compiled_runs)
    except Exception as failure:  # noqa: BLE001 - whatever a compiler or library raises, the other forms continue
        outcome, why = FormOutcome.FAILED, f"{type(failure).__name__}: {first_line(failure)}"
        _log.warning("the form %r failed and is excluded: %s", raced.form.label, why)
    raced.result = replace(
        raced.result,
        outcome=outcome,
        why=why,
        relative_error=error,
        setup_s=time.perf_counter() - started,
        peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else 0,
    )


def _check_compiled(raced: RacedForm, function: Any, compiled_runs: CompiledRuns) -> tuple[FormOutcome, str]:
    """Reject a form from `rs.compile` that ran in eager, and say why; a part that runs in eager is only mentioned."""
    states = compile_states(function.__rocsolid_function__ if isinstance(function, Captured) else function)
    reasons = [fallback.why for state in states for fallback in state.report().eager]
    if states and compiled_runs.only_eager:
        why = f"torch ran it in eager: {(*reasons, 'no compiled code was run')[0]}"
        _log.warning("the form %r is excluded: %s", raced.form.label, why)
        return FormOutcome.FAILED, why
    return FormOutcome.NOT_CHOSEN, f"a part of it runs in eager: {reasons[0]}" if reasons else ""


def _run_error(run: ExampleRun, wanted: ExampleRun) -> float:
    return relative_error((run.result, run.written), (wanted.result, wanted.written))


def why_not_comparable(eager: RacedForm) -> str:
    """Return why nothing can be compared with eager, if the second run of the example in eager was not like the first; otherwise ""."""
    if eager.eligible:
        return ""
    what = "fails" if eager.result.outcome is FormOutcome.FAILED else "returns other results"
    return (
        f"a second eager call with the same example {what} ({eager.result.why}), so no form can be compared with eager"
    )


def run_race(
    forms: Sequence[RacedForm], examples: Sequence[Example], limits: RaceLimits, on_step: OnStep = ignore_step
) -> Race:
    """Measure the eligible forms in interleaved rounds, each with all examples. The first form is the baseline, eager."""

    def call_all(function: Callable[..., Any]) -> Callable[[], None]:
        def call() -> None:
            for example in examples:
                example.call(function)

        return call

    calls = {raced.form.label: call_all(raced.made) for raced in forms if raced.eligible}

    def on_round(index: int, samples_ms: Mapping[str, Sequence[float]]) -> None:
        medians = {label: median(samples_ms[label]) for label in calls if samples_ms[label]}
        best = min(medians, key=lambda label: medians[label], default="")
        what = f"measuring {len(calls)} form{'s' * (len(calls) != 1)} in turns"
        text = f"{best!r}, {medians[best]:.3g} ms" if best else ""
        on_step(Step(what=what, done=index, total=limits.rounds, best=text))

    return race(calls, rounds=limits.rounds, budget_s=limits.seconds, on_round=on_round)


def choose_winner(forms: Sequence[RacedForm], times: Race) -> tuple[RacedForm, str]:
    """Return the fastest form and the reason. If a simpler form is as fast, it is returned instead; `forms` are ordered, simplest first."""
    eligible = [raced for raced in forms if raced.eligible]
    for raced in eligible:
        label = raced.form.label
        raced.result = replace(
            raced.result,
            timing=times.timing(label),
            against_eager=times.against_baseline(label) if label != times.baseline else None,
        )
    winner = _fastest(eligible, times)
    winner.result = replace(winner.result, outcome=FormOutcome.CHOSEN)
    others = [raced for raced in eligible if raced is not winner]
    if not others:
        skipped = any(raced.result.outcome is FormOutcome.SKIPPED for raced in forms)
        return winner, "the budget left no time for other forms" if skipped else "no other form works"
    if winner.form is Form.EAGER:
        return winner, "no other form is faster by more than the noise"
    gain = winner.result.against_eager
    speed = f"{gain.speedup:.2f} times as fast as eager" if gain else "the fastest"
    return winner, f"it is {speed} and its results match eager"


def _fastest(eligible: Sequence[RacedForm], times: Race) -> RacedForm:
    """Return the first form that is not measurably slower than the fastest.

    Eager is measured twice in each round; the difference of the two is the noise for comparisons with eager. This noise comes mostly from the CPU. Graphs hardly use the CPU, so two forms other than eager are compared directly, round by round.
    """
    eager, *others = eligible
    best = min(eligible, key=lambda raced: times.timing(raced.form.label).median_ms)
    if best is eager or times.against_baseline(best.form.label).verdict is not Verdict.FASTER:
        return eager
    rounds = times.samples_ms
    for raced in others:
        verdict = compare(rounds[raced.form.label], rounds[best.form.label]).verdict if raced is not best else None
        if verdict in (None, Verdict.SAME, Verdict.SLOWER):  # the verdict is about `best` compared with `raced`
            return raced
    return best
