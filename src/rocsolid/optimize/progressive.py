"""Answers from the first second, and gets faster: an eager form serves while the compiled one is made beside it.

The compile happens in a child process first, which fills the caches on disk and may hang or die without harm. Only then is the
model compiled here, from the caches, checked against eager, and put in place of the form that served meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from rocsolid.model.optimize_report import Candidate, OptimizeReport, Outcome
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.optimized import Capture, Optimized, closing_others, whereabouts
from rocsolid.optimize.race import EAGER, Entrant, Heat, judge, run_race, set_up
from rocsolid.runtime.background_thread import beside
from rocsolid.runtime.capture.captured import Captured

_log = logging.getLogger("rocsolid")
_HEAT: Final = Heat(seconds=5.0, rounds=15)
Trial = Callable[[], str]  # compiles elsewhere; nothing when that went well, else what went wrong


class Progressive(Optimized):
    """A model that is being optimized while it answers."""

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
        name = EAGER if capture is None else f"{EAGER}, graph"
        serving = Candidate(name=name, outcome=Outcome.CHOSEN, why="it serves while the model is being compiled")
        report = OptimizeReport(
            name=getattr(model, "__name__", type(model).__name__),
            where=whereabouts(),
            profile=profile,
            candidates=(serving,),
            chosen=name,
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
        self._worst_s = 0.0
        self._timed = True
        self._done = threading.Event()
        beside(self._work, "optimize")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer with the best there is at this moment."""
        if not self._timed:
            return self._function(*args, **kwargs)
        begun = time.perf_counter()
        result = self._function(*args, **kwargs)
        self._worst_s = max(self._worst_s, time.perf_counter() - begun)
        return result

    def report(self) -> OptimizeReport:
        """What has been found out so far, with the longest that any call took meanwhile."""
        return replace(self._report, worst_ms=self._worst_s * 1e3)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the work beside the calls is over; whether it is."""
        return self._done.wait(timeout_s)

    def _work(self) -> None:
        """In a thread of its own."""
        grad, inference = self._modes
        try:
            # In this order: inference mode, on or off, sets the grad mode too.
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                self._improve()
        except Exception as failed:  # noqa: BLE001 - whatever it is, calls go on being answered
            _log.exception("the model goes on as it is")
            self._stay(f"{type(failed).__name__}: {failed}")
        finally:
            self._timed = False
            self._done.set()

    def _improve(self) -> None:
        refused = self._trial() if self._trial is not None else ""
        if refused:
            _log.warning("%s", refused)
            self._stay(refused)
            return
        truth = [example.call(self._model) for example in self._examples]
        entrants = [
            Entrant(name=self._report.chosen, make=lambda: self._serving),
            Entrant(name="compiled" if self._capture is None else "compiled, graph", make=self._make),
        ]
        for entrant in entrants:
            set_up(entrant, self._examples, truth, float("inf"))
        raced = run_race(entrants, self._examples, _HEAT)
        winner, why = judge(entrants, raced)
        self._function = winner.form
        closing_others(entrants, winner, keep=self._serving)
        self._report = replace(
            self._report,
            candidates=tuple(entrant.result for entrant in entrants),
            chosen=winner.name,
            why=why,
            noise=raced.noise,
        )

    def _make(self) -> Callable[..., Any]:
        compiled = self._compiled()
        return compiled if self._capture is None else self._capture(compiled)

    def _stay(self, why: str) -> None:
        failed = Candidate(name="compiled", outcome=Outcome.FAILED, why=why)
        self._report = replace(
            self._report, candidates=(*self._report.candidates, failed), why=f"the compiled form cannot be used: {why}"
        )

    @property
    def captured(self) -> Captured | None:
        """The captured function that answers now, if one does."""
        return self._function if isinstance(self._function, Captured) else None
