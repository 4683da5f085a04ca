"""Prepares the forms of a model, excludes those that fail or return wrong results, measures the rest together, and chooses the fastest."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from rocsolid.errors import first_line
from rocsolid.measure.race import Race, race
from rocsolid.measure.statistics import compare
from rocsolid.model.form import Form
from rocsolid.model.log import log as _log
from rocsolid.model.optimize_report import FormOutcome, FormResult
from rocsolid.model.progress import OnStep, Step, ignore_step
from rocsolid.model.setting import Value
from rocsolid.model.timing import Verdict
from rocsolid.model.verify_report import Accuracy, TensorError
from rocsolid.numerics import Tolerance, error_limit, spread_between
from rocsolid.optimize.example_inputs import Example, ExampleRun
from rocsolid.reference import Referee, has_drawn, random_state, worst_error
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.regional_compile import compile_states
from rocsolid.torchapi.dynamo.compile_hooks import CompiledRuns

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
    settings: Mapping[str, Value] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    needless: str = ""  # why it is not made, if that is certain to lose nothing
    result: FormResult = field(init=False)

    def __post_init__(self) -> None:
        self.result = FormResult(form=self.form, settings=self.settings, outcome=FormOutcome.SKIPPED)

    @property
    def label(self) -> str:
        """The form and its settings, for messages."""
        return self.result.label

    @property
    def made(self) -> Callable[..., Any]:
        """The function; raises LookupError if it was not made."""
        if self.function is None:
            msg = f"the form {self.label!r} was not made"
            raise LookupError(msg)
        return self.function

    @property
    def eligible(self) -> bool:
        """Whether the form was made and its results are correct, so that it can be measured and chosen."""
        return self.function is not None and self.result.outcome is FormOutcome.NOT_CHOSEN


def raced_forms(makers: Mapping[Form, MakeForm], settings: Mapping[str, Value]) -> list[RacedForm]:
    """Return a `RacedForm` for each form, in the given order. The compiled ones are made with these settings."""
    return [
        RacedForm(form=form, make=make, settings=settings if form.compiles else {}) for form, make in makers.items()
    ]


@dataclass
class Expectation:
    """What eager returns for an example, how much a second eager run differs from that, and who decides about other forms."""

    run: ExampleRun
    referee: Referee
    draws_random: bool = False
    spread: Sequence[TensorError] = ()


def expect(
    model: Callable[..., Any],
    examples: Sequence[Example],
    tolerance: Tolerance = Tolerance(),
) -> list[Expectation]:
    """Run every example in eager."""
    expected = []
    for example in examples:
        generators = random_state()
        run = example.run(model)
        draws_random = has_drawn(generators)
        run_reference = partial(example.run_reference, model, tuple(run.written))
        referee = Referee(run_reference, tolerance, run_rounded=run_reference)
        expected.append(Expectation(run, referee, draws_random))
    return expected


def prepare(raced: RacedForm, examples: Sequence[Example], expected: Sequence[Expectation], deadline: float) -> None:
    """Make the form and run every example. The form is eligible if its results are as accurate as those of eager."""
    if time.perf_counter() > deadline:
        raced.result = replace(raced.result, why="no time was left in the budget")
        return
    started = time.perf_counter()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    result = raced.result
    try:
        function = raced.make()
        with CompiledRuns() as compiled_runs:
            for example in examples:
                example.run(function)  # the first call of a captured function runs in eager
            runs = [example.run(function) for example in examples]
        raced.function = function
        why_eager = _measure_spread(runs, expected) if raced.form is Form.EAGER else None
        result = why_eager or _judge_runs(raced.result, runs, expected)
        if result.outcome is FormOutcome.NOT_CHOSEN and isinstance(function, Captured) and not function.report().graphs:
            refusals = function.report().refusals
            why = refusals[0].message.splitlines()[0] if refusals else "nothing was captured"
            result = replace(result, outcome=FormOutcome.FAILED, why=why)
        elif result.outcome is FormOutcome.NOT_CHOSEN:
            result = _check_compiled(result, function, compiled_runs)
            found = function.report().workarounds if isinstance(function, Captured) else ()
            result = replace(result, why="; ".join(filter(None, (result.why, *map(str, found)))))
    except Exception as failure:  # noqa: BLE001 - whatever a compiler or library raises, the other forms continue
        result = replace(result, outcome=FormOutcome.FAILED, why=f"{type(failure).__name__}: {first_line(failure)}")
        _log.warning("the form %r failed and is excluded: %s", raced.label, result.why)
    raced.result = replace(
        result,
        setup_s=time.perf_counter() - started,
        peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else 0,
    )


def _check_compiled(result: FormResult, function: Any, compiled_runs: CompiledRuns) -> FormResult:
    """Reject a form from `rs.compile` that ran in eager, and say why; a part that runs in eager is only mentioned.

    Say it, too, if a function that is taken for eager has compiled itself.
    """
    if result.form is Form.EAGER and compiled_runs.ran_compiled:
        why = "the function calls torch.compile itself, so this is your compiled code: pass the function without it"
        _log.warning("%s", why)
        return replace(result, why="; ".join(filter(None, (result.why, why))))
    states = compile_states(function.__rocsolid_function__ if isinstance(function, Captured) else function)
    reasons = [fallback.why for state in states for fallback in state.report().eager]
    if states and compiled_runs.only_eager:
        why = f"torch ran it in eager: {(*reasons, 'no compiled code was run')[0]}"
        _log.warning("the form %r is excluded: %s", result.label, why)
        return replace(result, outcome=FormOutcome.FAILED, why=why)
    if reasons:
        return replace(result, why="; ".join(filter(None, (result.why, f"a part of it runs in eager: {reasons[0]}"))))
    return result


def _judge_runs(result: FormResult, runs: Sequence[ExampleRun], expected: Sequence[Expectation]) -> FormResult:
    """Compare the runs of a form with eager's. Returns the result with errors, verdict and outcome."""
    checks = [
        check
        for run, wanted in zip(runs, expected, strict=True)
        for check in wanted.referee.judge(run.leaves, wanted.run.leaves, wanted.spread)
    ]
    error, reference_error, eager_error = worst_error(checks)
    verdict = Accuracy.worst([check.verdict for check in checks])
    worst = next((check for check in checks if check.verdict is verdict), None)
    outcome, why = FormOutcome.NOT_CHOSEN, ""
    if any(run.written.keys() != wanted.run.written.keys() for run, wanted in zip(runs, expected, strict=True)):
        outcome, why = FormOutcome.WRONG, "it does not write to the same arguments as eager"
    elif worst is not None and verdict is not Accuracy.SAME:
        outcome = FormOutcome.NOT_CHOSEN if verdict.passes else FormOutcome.WRONG
        why = f"{verdict.value}: {worst.path}: {worst.why}"
    return replace(
        result,
        outcome=outcome,
        why=why,
        relative_error=error,
        verdict=verdict,
        reference_error=reference_error,
        eager_reference_error=eager_error,
    )


def _measure_spread(runs: Sequence[ExampleRun], expected: Sequence[Expectation]) -> FormResult | None:
    """Store how much two eager runs differ. Returns the result of eager if they do: other forms may not be comparable then."""
    differs, comparable, largest = False, True, 0.0
    for run, wanted in zip(runs, expected, strict=True):
        wanted.spread = spread_between(wanted.run.leaves, run.leaves)
        spread = max((error.relative_l2 for error in wanted.spread), default=0.0)
        differs |= any(error.mismatched or error.special for error in wanted.spread)
        comparable &= spread <= error_limit(wanted.run.result) and not any(error.special for error in wanted.spread)
        largest = max(largest, spread)
    if not differs:
        return None
    cause = (
        "it draws random numbers: is dropout left on?" if any(x.draws_random for x in expected) else "not deterministic"
    )
    why = f"two eager runs on the same example differ by {largest:.1e} (relative L2; {cause})"
    if comparable:
        why += "; the limits are widened by that"
    outcome = FormOutcome.NOT_CHOSEN if comparable else FormOutcome.WRONG
    return FormResult(form=Form.EAGER, outcome=outcome, why=why, relative_error=largest)


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

    calls = {raced.label: call_all(raced.made) for raced in forms if raced.eligible}

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
        label = raced.label
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
    result = winner.result
    accuracy = "its results match eager"
    if result.verdict is Accuracy.AS_ACCURATE and result.reference_error is not None:
        accuracy = (
            f"its results are as accurate as eager's (error {result.reference_error:.1e} against the model in higher precision, "
            f"eager {result.eager_reference_error:.1e})"
        )
    return winner, f"it is {speed} and {accuracy}"


def _fastest(eligible: Sequence[RacedForm], times: Race) -> RacedForm:
    """Return the first form that is not measurably slower than the fastest.

    Eager is measured twice in each round; the difference of the two is the noise for comparisons with eager. This noise comes mostly from the CPU. Graphs hardly use the CPU, so two forms other than eager are compared directly, round by round.
    """
    eager, *others = eligible
    best = min(eligible, key=lambda raced: times.timing(raced.label).median_ms)
    if best is eager or times.against_baseline(best.label).verdict is not Verdict.FASTER:
        return eager
    rounds = times.samples_ms
    for raced in others:
        verdict = compare(rounds[raced.label], rounds[best.label]).verdict if raced is not best else None
        if verdict in (None, Verdict.SAME, Verdict.SLOWER):  # the verdict is about `best` compared with `raced`
            return raced
    return best
