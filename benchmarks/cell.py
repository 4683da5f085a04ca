"""One model called in one way, in a process of its own that measures when it is asked to.

Talks in lines of JSON: first what setting up came to, then, for each number read from its input, as many times in milliseconds.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from benchmarks.models import MODELS, Built, Step
from rocsolid.measure.clock import select_clock

Call = Callable[..., Any]
WARM: Final = 3


def _optimized(model: Call, inputs: tuple[Any, ...], step: Step | None) -> Call:
    import rocsolid as rs

    if step is not None:
        msg = "rs.optimize has no single example here: the part of a loop is captured by rs.capture"
        raise NotImplementedError(msg)
    return rs.optimize(model, inputs)


def _captured(model: Call, _: tuple[Any, ...], step: Step | None) -> Call:
    import rocsolid as rs

    if step is not None and step.trains:
        made: Call = rs.capture(model, backward=True)
    else:
        made = rs.capture(rs.compile(model), buckets=step.buckets if step else None)
    return made


def _graphed(model: Call, inputs: tuple[Any, ...], step: Step | None) -> Call:
    if step is not None and not step.trains:
        msg = "it takes one shape, and no cache"
        raise NotImplementedError(msg)
    made: Call = torch.cuda.make_graphed_callables(model, tuple(x.clone() for x in inputs))
    return made


METHODS: Final[Mapping[str, Callable[[Call, tuple[Any, ...], Step | None], Call]]] = {
    "eager": lambda model, *_: model,
    "compile": lambda model, *_: torch.compile(model),
    "reduce-overhead": lambda model, *_: torch.compile(model, mode="reduce-overhead"),
    "max-autotune": lambda model, *_: torch.compile(model, mode="max-autotune"),
    "max-autotune-no-cudagraphs": lambda model, *_: torch.compile(model, mode="max-autotune-no-cudagraphs"),
    "make_graphed_callables": _graphed,
    "rs.capture": _captured,
    "rs.optimize": _optimized,
}


def fast(method: str, built: Built, model: Any, inputs: tuple[Any, ...]) -> Call:
    """The model as the method makes it, or with its step made so."""
    make = METHODS[method]
    if built.step is None:
        return make(model, inputs, None)
    # Past the module's own list of parts, since what a method returns may be no module.
    step = make(model.step, inputs, built.step)
    if step is not model.step:
        parameters = list(model.parameters())
        model.parameters = lambda: iter(parameters)
        del model.step
        object.__setattr__(model, "step", step)
    call: Call = model
    return call


def main() -> None:
    """Set up, say so, and measure on request."""
    name, method, device, kind = sys.argv[1:]
    talk = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever anybody prints is no answer of ours
    try:
        cell = Cell(name, method, device, getattr(torch, kind))
    except Exception as failed:  # noqa: BLE001 - a method that cannot do a model is a result
        said = str(failed).strip().partition("\n")[0]
        print(json.dumps({"failed": f"{type(failed).__name__}: {said}"[:300]}), file=talk, flush=True)
        return
    print(json.dumps(cell.about), file=talk, flush=True)
    for line in sys.stdin:
        print(json.dumps([cell.timed_ms() for _ in range(int(line))]), file=talk, flush=True)


class Cell:
    """A model, set up."""

    def __init__(self, name: str, method: str, device: str, kind: torch.dtype) -> None:
        torch.manual_seed(0)
        built = MODELS[name]()
        self._on_device = device == "cuda"
        with torch.no_grad():
            plain, inputs = built.model.to(device), tuple(x.to(device) for x in built.inputs)
            reference = first_tensor(plain(*inputs)).float()
            model = plain.to(kind)
            # Two sets in turn, so that what is copied in is really copied in.
            one = tuple(x.to(kind) if x.is_floating_point() else x for x in inputs)
            self._inputs = [one, tuple(x.clone() for x in one)]
            if self._on_device:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            begun = time.perf_counter()
            self._call = fast(method, built, model, one)
            for _ in range(WARM):
                result = self._call(*one)
            if self._on_device:
                torch.cuda.synchronize()
            setup = time.perf_counter() - begun
        _must_replay(getattr(self._call, "step", self._call))
        self._turn = 0
        self._clock = select_clock()
        error = float((first_tensor(result).float() - reference).norm() / reference.norm())
        self.about: dict[str, Any] = {"setup_s": round(setup, 2), "error": error}
        if self._on_device:
            self.about["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
        if hasattr(self._call, "report"):
            report = self._call.report()
            self.about["chosen"] = report.chosen
            self.about["candidates"] = {
                c.name: {
                    "outcome": c.outcome.value,
                    "ms": c.timing.median_ms if c.timing else None,
                    "error": c.error,
                    "why": c.why,
                }
                for c in report.candidates
            }

    def timed_ms(self) -> float:
        """One call, from the moment the device is idle until it is idle again."""
        self._turn ^= 1
        inputs = self._inputs[self._turn]
        with torch.no_grad():
            return self._clock.sample(lambda: self._call(*inputs), 1)


def _must_replay(call: Any) -> None:
    """A captured step that its program never asked is no result."""
    from rocsolid.runtime.capture.captured import Captured

    if isinstance(call, Captured) and not call.report().replays:
        msg = f"nothing was replayed: {call.report()}"
        raise RuntimeError(msg)


def first_tensor(result: Any) -> Any:
    """The result, or the first of several."""
    return result if isinstance(result, torch.Tensor) else next(x for x in result if isinstance(x, torch.Tensor))


if __name__ == "__main__":
    main()
