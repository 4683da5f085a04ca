"""Progressive optimization: an eager form is used at once, while the compiled form is made in the background.

The model is first compiled in a child process, which fills the caches on disk and may hang or crash without harm. Only then is it
compiled in this process, from the caches, compared with eager, and used instead of the eager form.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.optimized import Capture, Optimized, close_others, device_and_versions
from rocsolid.optimize.race import RacedForm, RaceLimits, choose_winner, prepare, run_race
from rocsolid.runtime.background_thread import run_in_background
from rocsolid.runtime.capture.captured import Captured

_log = logging.getLogger("rocsolid")
_LIMITS: Final = RaceLimits(seconds=5.0, rounds=15)
Trial = Callable[[], str]  # compiles in a child process; returns "" or the reason of a failure


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
    ) -> None:
        first: Callable[..., Any] = model if capture is None else capture(model)
        form = Form.EAGER if capture is None else Form.EAGER_GRAPH
        serving = FormResult(form=form, outcome=FormOutcome.CHOSEN, why="used while the model is being compiled")
        report = OptimizeReport(
            name=getattr(model, "__name__", type(model).__name__),
            machine=device_and_versions(),
            profile=profile,
            forms=(serving,),
            chosen=form,
            why="the model is being compiled",
            noise=0.0,
            examples=len(examples),
        )
        super().__init__(first, model, report)
        self._serving = first
        self._examples = list(examples)
        self._compiled = compiled
        self._capture = capture
        self._trial = trial
        self._modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        self._longest_s = 0.0
        self._timing_calls = True
        self._done = threading.Event()
        run_in_background(self._work, "optimize")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the best form that is ready now."""
        if not self._timing_calls:
            return self._function(*args, **kwargs)
        started = time.perf_counter()
        result = self._function(*args, **kwargs)
        self._longest_s = max(self._longest_s, time.perf_counter() - started)
        return result

    def report(self) -> OptimizeReport:
        """The results so far, with the longest call while the model was being compiled."""
        return replace(self._report, longest_call_ms=self._longest_s * 1e3)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the background work has ended; return whether it has."""
        return self._done.wait(timeout_s)

    def _work(self) -> None:
        """Run in the background thread."""
        grad, inference = self._modes
        try:
            # In this order, because entering or leaving inference mode also sets the grad mode.
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                self._improve()
        except Exception as error:  # noqa: BLE001 - calls must keep working
            _log.exception("progressive optimization failed; the model keeps its current form")
            self._keep_form(f"{type(error).__name__}: {error}")
        finally:
            self._timing_calls = False
            self._done.set()

    def _improve(self) -> None:
        refused = self._trial() if self._trial is not None else ""
        if refused:
            _log.warning("%s", refused)
            self._keep_form(refused)
            return
        expected = [example.call(self._model) for example in self._examples]
        forms = [
            RacedForm(form=self._report.chosen, make=lambda: self._serving),
            RacedForm(form=Form.of("compiled", graph=self._capture is not None), make=self._make),
        ]
        for raced in forms:
            prepare(raced, self._examples, expected, float("inf"))
        times = run_race(forms, self._examples, _LIMITS)
        winner, why = choose_winner(forms, times)
        self._function = winner.made
        close_others(forms, winner, keep=self._serving)
        self._report = replace(
            self._report,
            forms=tuple(raced.result for raced in forms),
            chosen=winner.form,
            why=why,
            noise=times.noise,
        )

    def _make(self) -> Callable[..., Any]:
        compiled = self._compiled()
        return compiled if self._capture is None else self._capture(compiled)

    def _keep_form(self, why: str) -> None:
        failed = FormResult(form=Form.COMPILED, outcome=FormOutcome.FAILED, why=why)
        self._report = replace(
            self._report, forms=(*self._report.forms, failed), why=f"the compiled form cannot be used: {why}"
        )

    @property
    def captured(self) -> Captured | None:
        """The captured function, if the form in use has a graph."""
        return self._function if isinstance(self._function, Captured) else None
