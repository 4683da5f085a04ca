"""Progressive optimization: calls use an eager form immediately, while the model is compiled in the background.

The model is first compiled in a child process. This fills the caches on disk, and a hang or crash there does not affect the program.
Only then is the model compiled in this process, from the caches. If its results match eager and it is faster, it replaces the eager form.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import torch

from rocsolid.errors import CaptureError
from rocsolid.model.form import Form
from rocsolid.model.log import log as _log
from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.numerics import Tolerance
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.form_race import close_others
from rocsolid.optimize.optimized import Capture, Optimized, device_and_versions
from rocsolid.optimize.race import RacedForm, RaceLimits, choose_winner, expect, prepare, run_race, why_not_comparable
from rocsolid.runtime.background_thread import considerate_thread, run_in_background
from rocsolid.runtime.capture.captured import Captured
from rocsolid.torchapi.fx_tracing import traces_in_one_thread

_RACE_LIMITS: Final = RaceLimits(seconds=5.0, rounds=15)
Trial = Callable[[], str]  # compiles in a child process; returns why that failed, or ""


class Progressive(Optimized):
    """A model that is optimized in the background while it is used."""

    def __init__(
        self,
        model: Callable[..., Any],
        examples: Sequence[Example],
        *,
        profile: str,
        compiled: Callable[[], Callable[..., Any]],
        capture: Capture | None,
        trial: Trial | None,
        tolerance: Tolerance = Tolerance(),
        checks_expected: bool = False,
    ) -> None:
        first_function: Callable[..., Any] = model if capture is None else capture(model)
        form = Form.EAGER if capture is None else Form.EAGER_GRAPH
        first_form = FormResult(form=form, outcome=FormOutcome.CHOSEN, why="used while the model is being compiled")
        report = OptimizeReport(
            name=getattr(model, "__name__", type(model).__name__),
            machine=device_and_versions(),
            profile=profile,
            forms=(first_form,),
            chosen=form,
            why="the model is being compiled",
            noise=0.0,
            example_count=len(examples),
        )
        super().__init__(first_function, model, report, checks_expected=checks_expected)
        self._first_function = first_function
        self._examples = [example.private_copy(model) for example in examples]
        if isinstance(first_function, Captured):
            with suppress(CaptureError):  # then calls run in eager, and its report says why
                first_function.warm([(example.args, example.kwargs) for example in self._examples])
        self._compile = compiled
        self._capture = capture
        self._trial = trial
        self._tolerance = tolerance
        self._grad_and_inference = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        self._longest_call_s = 0.0
        self._timing_calls = True
        self._done = threading.Event()
        run_in_background(self._optimize_in_background, "optimize")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the form that is in use now."""
        if not self._timing_calls:
            return self._function(*args, **kwargs)
        started = time.perf_counter()
        result = self._function(*args, **kwargs)
        self._longest_call_s = max(self._longest_call_s, time.perf_counter() - started)
        return result

    def report(self) -> OptimizeReport:
        """Return the results so far, with the slowest call of the model while it was compiled in the background."""
        longest_call_ms = self._longest_call_s * 1e3 if self._longest_call_s else None
        return replace(super().report(), in_progress=not self._done.is_set(), longest_call_ms=longest_call_ms)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the background work has ended; return False if the timeout was reached before."""
        return self._done.wait(timeout_s)

    def _optimize_in_background(self) -> None:
        """Do the work of the background thread."""
        grad, inference = self._grad_and_inference
        try:
            # In this order, because entering or leaving inference mode also sets the grad mode.
            with (
                considerate_thread(),
                traces_in_one_thread(),
                torch.inference_mode(inference),
                torch.set_grad_enabled(grad),
            ):
                self._compile_and_race()
        except Exception as error:  # noqa: BLE001 - calls must keep working
            _log.exception("progressive optimization failed; the model keeps its current form")
            self._keep_form(f"{type(error).__name__}: {error}")
        finally:
            self._timing_calls = False
            self._done.set()

    def _compile_and_race(self) -> None:
        failure = ""
        if self._trial is not None:
            name, started = self._report.name, time.perf_counter()
            _log.info("%s: is being compiled in a child process", name)
            failure = self._trial()
            _log.info("%s: the child process ended after %.0f s", name, time.perf_counter() - started)
        if failure:
            _log.warning("%s", failure)
            self._keep_form(failure)
            return
        expected = expect(self._model, self._examples, self._tolerance)
        forms = [
            RacedForm(form=self._report.chosen, make=lambda: self._first_function),
            RacedForm(form=Form.of("compiled", graph=self._capture is not None), make=self._make_compiled),
        ]
        for raced in forms:
            prepare(raced, self._examples, expected, float("inf"))
        if not any(raced.eligible for raced in forms):
            self._keep_form(why_not_comparable(forms[0]))
            return
        times = run_race(forms, self._examples, _RACE_LIMITS)
        winner, why = choose_winner(forms, times)
        self.use(winner.made)
        close_others(forms, winner, keep=self._first_function)
        self._report = replace(
            self._report,
            forms=tuple(raced.result for raced in forms),
            chosen=winner.form,
            why=why,
            noise=times.noise,
        )
        self._warn_if_unchecked()
        _log.info("%s: %r is in use from now on: %s", self._report.name, self._report.chosen_label, why)

    def _make_compiled(self) -> Callable[..., Any]:
        compiled = self._compile()
        return compiled if self._capture is None else self._capture(compiled)

    def _keep_form(self, why: str) -> None:
        failed = FormResult(form=Form.COMPILED, outcome=FormOutcome.FAILED, why=why)
        self._report = replace(
            self._report, forms=(*self._report.forms, failed), why=f"the compiled form cannot be used: {why}"
        )
