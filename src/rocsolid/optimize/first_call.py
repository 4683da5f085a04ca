"""Without an example, the first call is the example: it runs in eager, then the model is optimized for calls like it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rocsolid.errors import first_line
from rocsolid.model.form import Form
from rocsolid.model.log import log as _log
from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.optimized import Optimized, OptimizedModule, device_and_versions
from rocsolid.runtime.capture.captured import Captured


class FirstCall(Optimized):
    """A model that waits for its first call, and is then optimized with the arguments of that call.

    Calls that train, while a graph is captured or while torch traces run in eager and are not the example. Other threads run in
    eager until the model is optimized.
    """

    def __init__(self, model: Callable[..., Any], optimize_for: Callable[[Example], Any]) -> None:
        why = "waiting for the first call, whose arguments will be the example"
        report = OptimizeReport(
            name=getattr(model, "__name__", type(model).__name__),
            machine=device_and_versions(),
            profile="",
            forms=(FormResult(form=Form.EAGER, outcome=FormOutcome.CHOSEN, why=why),),
            chosen=Form.EAGER,
            why=why,
            noise=0.0,
            example_count=0,
        )
        self._inner: Optimized | None = None
        self._optimize_for = optimize_for
        self._first = threading.Lock()  # held from the first call on
        super().__init__(model, model, report)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimized model; the first call runs in eager, and optimizes the model."""
        if self._inner is not None:
            return self._inner(*args, **kwargs)
        if self._is_no_example() or not self._first.acquire(blocking=False):
            return self._model(*args, **kwargs)
        try:
            example = Example(args, kwargs).private_copy(self._model)
        except Exception as error:  # noqa: BLE001 - the call itself must work
            self._keep_eager(first_line(error))
            return self._model(*args, **kwargs)
        try:
            result = self._model(*args, **kwargs)
        except BaseException:
            self._first.release()  # the next call is the first one
            raise
        self._optimize(example)
        return result

    def _is_no_example(self) -> bool:
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        trains = torch.is_grad_enabled() and getattr(self._model, "training", False)
        return capturing or torch.compiler.is_compiling() or bool(trains)

    def _optimize(self, example: Example) -> None:
        try:
            inner = self._optimize_for(example)
        except Exception as error:  # noqa: BLE001 - the call itself has worked
            self._keep_eager(f"{type(error).__name__}: {first_line(error)}")
            return
        inner = inner.rocsolid if isinstance(inner, OptimizedModule) else inner
        if self._undone:  # by another thread
            inner.undo()
            return
        self._inner = inner
        if self._sealed:
            self._inner.seal(self._sealed)

    def _keep_eager(self, why: str) -> None:
        _log.warning("%s runs in eager: it could not be optimized for its first call: %s", self._report.name, why)
        self._report = replace(self._report, why=f"the first call could not be used as the example: {why}")

    def report(self) -> OptimizeReport:
        """Return the forms that were tried with the first call."""
        return super().report() if self._inner is None else self._inner.report()

    def seal(self, otherwise: str = "raise") -> None:
        """Forbid compiles and captures within calls, except in the first one."""
        super().seal(otherwise)
        if self._inner is not None:
            self._inner.seal(otherwise)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the background work of `progressive=True` has ended; return False if it has not, or before the first call."""
        wait = getattr(self._inner, "wait", None)
        return self._inner is not None and (wait is None or bool(wait(timeout_s)))

    @property
    def captured(self) -> Captured | None:
        """The captured function, if the chosen form has a graph."""
        return None if self._inner is None else self._inner.captured

    def check_model(self, *, new_weights: bool = False) -> None:
        """Compare mode, dtypes and devices of the model with those of the measurement."""
        if self._inner is not None:
            self._inner.check_model(new_weights=new_weights)

    def undo(self) -> Any:
        """Free the graphs and return the plain model. From now on this object behaves like it, too."""
        self._first.acquire(blocking=False)
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.undo()
        return super().undo()
