"""Measures the forms of a model against each other."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rocsolid.model.form import Form
from rocsolid.model.log import log as _log
from rocsolid.model.optimize_report import FormOutcome
from rocsolid.model.plan import Decision
from rocsolid.model.progress import OnStep, Step, ignore_step
from rocsolid.model.setting import Value
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.race import (
    Expectation,
    MakeForm,
    RacedForm,
    RaceLimits,
    choose_winner,
    prepare,
    raced_forms,
    run_race,
    why_not_comparable,
)
from rocsolid.runtime.capture.captured import Captured

_FULL_RACE: Final = RaceLimits(seconds=20.0, rounds=15)
_LONG_SETUP_S: Final = 60.0  # without a budget, a form or setting whose set-up is expected to take longer is skipped
_CALLS_IN_RACE: Final = 8  # of each form, at least
_CALLS_IN_CAPTURE: Final = 12  # warm-up runs, runs that are watched, and verification
_MAX_NOISE_TO_SAVE: Final = 0.05  # with more, another process might find a faster form
_MAX_RACE_SHARE: Final = 0.3  # of the budget, kept for the race
# In which order forms are set up: a graph before the form that it shares a compile with. The graph of eager comes last, because the
# first compile of a process changes `torch.nn.Module`, and a graph that was captured before would be captured again. Its time is kept.
_SETUP_ORDER: Final = (
    Form.EAGER,
    Form.REGIONAL_GRAPH,
    Form.REGIONAL,
    Form.COMPILED_GRAPH,
    Form.COMPILED,
    Form.EAGER_GRAPH,
)
# Few layers are compiled with the whole model about as fast, and its kernels also cross their borders.
_WHOLE_FIRST: Final = (_SETUP_ORDER[0], *_SETUP_ORDER[3:5], *_SETUP_ORDER[1:3], _SETUP_ORDER[5])
_FEW_LAYERS: Final = 16
Forms = Mapping[Form, MakeForm]


class MakeForms(Protocol):
    """Returns how to make each form of a model with these settings besides the plan's; compiles end at `ends_at`."""

    def __call__(self, settings: Sequence[Decision] = ..., ends_at: float = ...) -> Forms:
        """Return a function for each form, which makes it."""


@dataclass
class RaceOutcome:
    """The result of a race between forms."""

    forms: Sequence[RacedForm]
    winner: RacedForm
    why: str
    noise: float

    @property
    def winner_to_save(self) -> Form | None:
        """The fastest form, for the next process; None if a form was skipped.

        Eager is saved if others worked and the comparison was not noisy.
        """
        skipped = [raced for raced in self.forms if raced.result.outcome is FormOutcome.SKIPPED]
        complete = all(raced.settings or raced.needless for raced in skipped)
        if self.winner.form is Form.EAGER:
            complete &= self.noise <= _MAX_NOISE_TO_SAVE and any(x.eligible for x in self.forms if x is not self.winner)
        return self.winner.form if complete else None


@dataclass(frozen=True, kw_only=True)
class FormRace:
    """Races forms on the same examples, until a deadline."""

    examples: Sequence[Example]
    expected: Sequence[Expectation]
    deadline: float
    on_step: OnStep = ignore_step
    unrolled_steps: int = 0  # how often compiling the whole model compiles the region again; 0 if that is not known
    layers: int = 0  # that are alike, and compiled once by region

    def run(
        self,
        makers: Forms,
        *,
        limits: RaceLimits = _FULL_RACE,
        tracing: Callable[[Form], AbstractContextManager[bool]] = lambda _: nullcontext(False),
        settings: Mapping[str, Value] | None = None,
    ) -> RaceOutcome:
        """Prepare the forms, race the eligible ones, and release the graphs of the others.

        A form is prepared inside `tracing(form)`, which yields whether Dynamo traces are saved or used. If they are and the form fails,
        it is prepared once more without them.
        """
        forms = raced_forms(makers, settings or {})
        deadline = float("inf")
        kept_s = 0.0  # for the graph of eager
        order = _WHOLE_FIRST if self._prefers_whole(makers) else _SETUP_ORDER
        for index, raced in enumerate(sorted(forms, key=lambda x: order.index(x.form))):
            what = "running eager" if raced.form is Form.EAGER else f"setting up and verifying {raced.label!r}"
            self.on_step(Step(what=what, done=index, total=len(forms) + 1, alike=False))
            form_deadline = deadline if raced.form is Form.EAGER_GRAPH else deadline - kept_s
            why = self._takes_too_long(raced, forms, form_deadline)
            raced.needless = self._brings_nothing(raced, forms, makers)
            if why := why or raced.needless:
                raced.result = replace(raced.result, why=why)
                continue
            with tracing(raced.form) as uses_traces:
                prepare(raced, self.examples, self.expected, form_deadline)
            if uses_traces and raced.result.outcome is FormOutcome.FAILED:
                prepare(raced, self.examples, self.expected, form_deadline)
            if raced.form is Form.EAGER and (why := why_not_comparable(raced)):
                raced.function = raced.make()
                raced.result = replace(raced.result, outcome=FormOutcome.CHOSEN, why=why)
                _log.warning("%s", why)
                return RaceOutcome(forms=forms, winner=raced, why=why, noise=0.0)
            if raced.form is Form.EAGER:
                deadline = self.deadline - self._race_s(raced, len(forms))
                kept_s = raced.result.setup_s * _CALLS_IN_CAPTURE / 2 if Form.EAGER_GRAPH in makers else 0.0
        times = run_race(forms, self.examples, self.within_budget(limits), self.on_step)
        winner, why = choose_winner(forms, times)
        close_others(forms, winner)
        return RaceOutcome(forms=forms, winner=winner, why=why, noise=times.noise)

    def within_budget(self, limits: RaceLimits) -> RaceLimits:
        """Return the limits of a race that ends by the deadline."""
        return replace(limits, seconds=max(0.0, min(limits.seconds, self.deadline - time.perf_counter())))

    def _race_s(self, eager: RacedForm, count: int) -> float:
        """Return how much of the budget is kept for the race: what the shortest race takes if all forms are as slow as eager."""
        call_s = eager.result.setup_s / 2  # it ran each example twice
        return min(
            _CALLS_IN_RACE * (count + 1) * call_s, _MAX_RACE_SHARE * max(0.0, self.deadline - time.perf_counter())
        )

    def _prefers_whole(self, makers: Forms) -> bool:
        return Form.EAGER_GRAPH in makers and not self.unrolled_steps and 0 < self.layers <= _FEW_LAYERS

    def _brings_nothing(self, raced: RacedForm, forms: Sequence[RacedForm], makers: Forms) -> str:
        """Return why a form that compiles only the layers is skipped, if the whole model works; otherwise ""."""
        whole = next((x for x in forms if x.form is Form.COMPILED_GRAPH and x.eligible), None)
        if raced.form.id != Form.REGIONAL.id or whole is None or not self._prefers_whole(makers):
            return ""
        return f"the whole model, with {self.layers} layers, was set up in {whole.result.setup_s:.0f} s"

    def _takes_too_long(self, raced: RacedForm, forms: Sequence[RacedForm], deadline: float) -> str:
        """Return why a form that compiles the whole model is skipped, if it would compile the same step many times; otherwise ""."""
        if raced.form.id != Form.COMPILED.id or not self.unrolled_steps:
            return ""
        same_compile = [other for other in forms if other is not raced and other.form.id == raced.form.id]
        if any(other.function is not None for other in same_compile):
            return ""
        expected_s = self.unrolled_steps * max(
            (x.result.setup_s for x in forms if x.form.id == Form.REGIONAL.id), default=0.0
        )
        left_s = min(deadline - time.perf_counter(), _LONG_SETUP_S if self.deadline == float("inf") else float("inf"))
        if expected_s <= left_s:
            return ""
        return too_long(expected_s, left_s, f"it would compile the same step {self.unrolled_steps} times: ")


def too_long(expected_s: float, left_s: float, cause: str = "") -> str:
    """Return why a form is skipped whose set-up is expected to take longer than the time that is left."""
    return f"{cause}set-up would take about {expected_s:.0f} s and {max(0.0, left_s):.0f} s are left; budget_s= allows more"


def close_others(forms: Sequence[RacedForm], winner: RacedForm, keep: object = None) -> None:
    """Release the graphs of the forms that were not chosen, except that of the function `keep`."""
    for raced in forms:
        if raced is not winner and raced.function is not keep and isinstance(raced.function, Captured):
            raced.function.close()
