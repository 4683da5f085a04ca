"""Run one model with one method in its own process, and measure it on request.

It writes lines of JSON: first the result of the set-up, then one for each line that it reads. For a number N this is a list of N times
in milliseconds on the GPU; for `wall N`, of N times until the result is there, by the host's clock; for `kernels`, the number of
kernels of one call and how long they take.
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
WARMUP_CALLS: Final = 3


def _optimized(model: Call, inputs: tuple[Any, ...], step: Step | None) -> Call:
    import rocsolid as rs

    if step is not None:
        msg = "rs.optimize needs one example input, and this program has many; its step is captured by rs.capture"
        raise NotImplementedError(msg)
    fast: Call = rs.optimize(model, inputs)
    return fast


def _captured(model: Call, _: tuple[Any, ...], step: Step | None) -> Call:
    import rocsolid as rs

    if step is not None and step.trains:
        made: Call = rs.capture(model, backward=True)
    else:
        made = rs.capture(rs.compile(model), buckets=step.buckets if step else None)
    return made


def _graphed(model: Call, inputs: tuple[Any, ...], step: Step | None) -> Call:
    if step is not None and not step.trains:
        msg = "make_graphed_callables takes one shape and no cache"
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
    """Apply the method to the model, or to its step if it has one."""
    make = METHODS[method]
    if built.step is None:
        return make(model, inputs, None)
    # Not through nn.Module's own registry, because a method may return something that is not a module.
    step = make(model.step, inputs, built.step)
    if step is not model.step:
        parameters = list(model.parameters())
        model.parameters = lambda: iter(parameters)
        del model.step
        object.__setattr__(model, "step", step)
    call: Call = model
    return call


def main() -> None:
    """Set up, report it, and measure on request."""
    name, method, device, dtype = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other prints go to stderr
    try:
        cell = Cell(name, method, device, getattr(torch, dtype))
    except Exception as failed:  # noqa: BLE001 - the failure of a method is a result
        text = str(failed).strip().partition("\n")[0]
        print(json.dumps({"failed": f"{type(failed).__name__}: {text}"[:300]}), file=out, flush=True)
        return
    print(json.dumps(cell.about), file=out, flush=True)
    for line in sys.stdin:
        command, _, count = line.strip().rpartition(" ")
        timed = cell.wall_ms if command == "wall" else cell.timed_ms
        answer = cell.kernels() if count == "kernels" else [timed() for _ in range(int(count))]
        print(json.dumps(answer), file=out, flush=True)


class Cell:
    """A model that is set up with a method and ready to be measured."""

    def __init__(self, name: str, method: str, device: str, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        built = MODELS[name]()
        self._on_device = device == "cuda"
        with torch.no_grad():
            plain, inputs = built.model.to(device), tuple(x.to(device) for x in built.inputs)
            with work_of(plain) as work:
                reference = first_tensor(plain(*inputs)).float()
            model = plain.to(dtype)
            # Two sets of inputs take turns, so that every replay really copies its inputs.
            one = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
            self._inputs = [one, tuple(x.clone() for x in one)]
            if self._on_device:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            begun = time.perf_counter()
            self._call = fast(method, built, model, one)
            for _ in range(WARMUP_CALLS):
                result = self._call(*one)
            if self._on_device:
                torch.cuda.synchronize()
            setup = time.perf_counter() - begun
        _must_replay(getattr(self._call, "step", self._call))
        self._turn = 0
        self._clock = select_clock()
        error = float((first_tensor(result).float() - reference).norm() / reference.norm())
        self.about: dict[str, Any] = {"setup_s": round(setup, 2), "error": error}
        if self._on_device and (roofline := work.roofline_ms(dtype.itemsize)):
            self.about["roofline_ms"] = roofline
        if self._on_device:
            self.about["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
        if hasattr(self._call, "report"):
            report = self._call.report()
            self.about["chosen"] = report.chosen.label
            self.about["candidates"] = {
                c.form.label: {
                    "outcome": c.outcome.value,
                    "ms": c.timing.median_ms if c.timing else None,
                    "error": c.relative_error,
                    "why": c.why,
                }
                for c in report.forms
            }

    def timed_ms(self) -> float:
        """Return the time of one call, from an idle GPU until it is idle again, by the GPU's clock."""
        inputs = self._next_inputs()
        with torch.no_grad():
            return self._clock.sample(lambda: self._call(*inputs), 1)

    def wall_ms(self) -> float:
        """Return the time from the call until its result is there, by the host's clock."""
        inputs = self._next_inputs()
        wait = torch.cuda.synchronize if self._on_device else lambda: None
        wait()
        with torch.no_grad():
            begun = time.perf_counter()
            self._call(*inputs)
            wait()
            return (time.perf_counter() - begun) * 1e3

    def _next_inputs(self) -> tuple[Any, ...]:
        self._turn ^= 1
        return self._inputs[self._turn]

    def kernels(self) -> dict[str, Any]:
        """Return the number of kernels of one call, and how long they take without the gaps between them."""
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA]) as profiled:
            self._call(*self._inputs[0])
            torch.cuda.synchronize()
        found = [event for event in profiled.events() if event.device_type == DeviceType.CUDA]
        return {"kernels": len(found), "device_ms": round(sum(event.device_time for event in found) / 1e3, 4)}


# Bytes and operations per second that a GPU reaches: its memory bandwidth, and dense products in half precision.
_PEAKS: Final = {"NVIDIA H200": (4.8e12, 790e12)}


class work_of:  # noqa: N801 - a block
    """Counts what the modules do that are called in the block: the elements of weights that they read, and FLOPs."""

    def __init__(self, model: torch.nn.Module) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        self._model, self._flops = model, FlopCounterMode(display=False)
        self._hooks: list[Any] = []
        self._elements = 0

    def __enter__(self) -> "work_of":
        # An embedding reads a few rows only.
        modules = [m for m in self._model.modules() if not isinstance(m, torch.nn.Embedding)]
        self._hooks = [m.register_forward_pre_hook(self._count) for m in modules]
        self._flops.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._flops.__exit__(*failure)
        for hook in self._hooks:
            hook.remove()

    def _count(self, module: torch.nn.Module, _: Any) -> None:
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        self._elements += sum(tensor.numel() for tensor in own)

    def roofline_ms(self, element_bytes: int) -> float | None:
        """The time that reading the weights or the FLOPs need at least, whichever is longer; None on an unknown GPU."""
        peaks = _PEAKS.get(torch.cuda.get_device_name())
        if peaks is None:
            return None
        bytes_s, flops_s = peaks
        seconds: float = max(self._elements * element_bytes / bytes_s, self._flops.get_total_flops() / flops_s)
        return round(seconds * 1e3, 4)


def _must_replay(call: Any) -> None:
    """Raise if the program never used its captured step."""
    from rocsolid.runtime.capture.captured import Captured, CapturedModule

    if isinstance(call, (Captured, CapturedModule)) and not call.report().replays:
        msg = f"nothing was replayed: {call.report()}"
        raise RuntimeError(msg)


def first_tensor(result: Any) -> Any:
    """The result, or the first tensor of several."""
    return result if isinstance(result, torch.Tensor) else next(x for x in result if isinstance(x, torch.Tensor))


if __name__ == "__main__":
    main()
