"""The inside of a trial that measures: build the workload, make its variant, check the answer, then time it.

This runs in a process of its own, and what it returns is plain data.
"""

import platform
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, Final

import torch

from rocsolid.catalog.capture_precautions import precautions_for
from rocsolid.errors import CannotRunError, CaptureError
from rocsolid.measure.clock import Clock, calls_per_sample, clock_here, cores_here, on_core
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.codec import decode
from rocsolid.model.plan import Plan
from rocsolid.model.workload import Workload
from rocsolid.probe.quick_facts import surroundings
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.compiled import compiled_with
from rocsolid.runtime.regional_compile import Regional, repeated_regions
from rocsolid.tune.check_results import Checker, Inputs
from rocsolid.tune.isolate.trial_process import Reporter
from rocsolid.tune.multi_rank import Others, follow

_SAMPLES: Final = 8
_BLOCK_MS: Final = 60.0  # about how long a turn in a race may take
_SHORTEST_MS: Final = 1.0  # what a sample is taken to last at least
_PAUSE_S: Final = 0.03
_REPLAYS: Final = 20  # of a captured variant


@dataclass(frozen=True, kw_only=True)
class Made:
    """A variant that is set up and has answered rightly."""

    checker: Checker
    function: Callable[..., Any]
    setup_s: float
    checked: str
    error: float | None

    def call(self) -> None:
        """The user's call."""
        self.checker.first.call(self.function)


def measure(
    reporter: Reporter,
    *,
    grad: bool = False,
    cold: bool = False,
    stay: bool = False,
    turns: int = 1,
    ranks: int = 1,
    **wish: Any,
) -> dict[str, Any]:
    """One variant from its file to its samples; with `stay` it answers requests for more of them until it is closed."""
    reporter.phase("build")
    others = Others(reporter, ranks, {**wish, "grad": grad})
    try:
        with nullcontext() if grad else torch.no_grad():
            return _measured(reporter, _set_up(reporter.phase, **wish), others, cold=cold, turns=turns if stay else 0)
    except Exception:
        others.speak_first()
        raise


def _measured(reporter: Reporter, made: Made, others: Others, *, cold: bool, turns: int) -> dict[str, Any]:
    reporter.phase("measure")
    clock = clock_here(cold=cold)

    def call() -> None:
        others.call()
        made.call()

    block = _block(clock, call, turns or 1)
    samples = []
    if turns:
        reporter.serve(lambda _: block())
    else:
        samples = [block() for _ in range(_SAMPLES)]
    reporter.phase("verify")
    others.check()
    made.checker.check(made.function)  # what was right before the clock must be right after it
    _write_out_tunableop()
    return {
        "samples_ms": samples,
        "clock": clock.name,
        "setup_s": made.setup_s,
        "peak_bytes": max(_peak_bytes(), others.finish()),
        "checked": made.checked,
        "error": made.error,
        **_where(),
    }


def follow_along(wish: Mapping[str, Any], commands: int) -> int:
    """A rank that is not the first: set up alike, then do as told; returns the device memory it took."""
    told = dict(wish)
    with nullcontext() if told.pop("grad") else torch.no_grad():
        made = _set_up(lambda _: None, **told)
        follow(commands, made, lambda: made.checker.check(made.function))
    return _peak_bytes()


def _set_up(phase: Callable[[str], None], *, workload: str, plan: Mapping[str, Any], form: str, graph: bool) -> Made:
    work = load_workload(workload)
    checker = Checker(work)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # what the references took is not the variant's
    begun = time.perf_counter()
    phase("compile")
    function = _made(decode(Plan, dict(plan), "plan"), work, form)
    checker.first.call(function)
    if graph and checker.first.on_device:
        phase("capture")
        function = _captured(function, checker.first)
    setup_s = time.perf_counter() - begun
    phase("verify")
    checked, error = checker.check(function, _REPLAYS if graph else 1)
    return Made(checker=checker, function=function, setup_s=setup_s, checked=checked, error=error)


def _write_out_tunableop() -> None:
    """Releases that write its results at the end of the process never come to it: a trial leaves without tearing down."""
    if torch.cuda.is_available() and torch.cuda.tunable.is_enabled():
        write = getattr(torch.cuda.tunable, "write_file", None)
        if write is not None:
            write()


def _peak_bytes() -> int:
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


def _block(clock: Clock, call: Callable[[], None], turns: int = 1) -> Callable[[], float]:
    """A turn: one figure of a few samples after a short pause, since what disturbs one sample disturbs its neighbour.

    A host's neighbours only ever make a call slower, so there the least of them is nearest to the truth; a device's own clock
    errs both ways, so there it is the middle. Neighbours come and go within a second, and slow one core and not another: so of
    many short turns each is on one core, and as all processes draw alike, those that are held against each other on the same.

    How many calls a turn has is found out in the first one: before a race, others may still be compiling beside this process.
    """
    figure: Callable[[Iterable[float]], float] = min if clock.name == "host" else median

    @cache
    def size() -> tuple[int, int]:
        calls = calls_per_sample(call, warmups=3)
        sample_ms = max(min(clock.sample(call, calls) for _ in range(3)) * calls, _SHORTEST_MS)
        return calls, max(1, int(_BLOCK_MS / turns / sample_ms))

    cores: list[int | None] = [*cores_here()] if clock.name == "host" and turns > 1 else []
    order = random.Random(0)  # noqa: S311 - a pause and a core, no secret

    def block() -> float:
        time.sleep(order.uniform(0, _PAUSE_S / turns))
        calls, few = size()
        with on_core(order.choice(cores or [None])):
            call()  # others had the caches since
            return figure(clock.sample(call, calls) for _ in range(few))

    return block


def _made(plan: Plan, work: Workload, form: str) -> Callable[..., Any]:
    if form == "eager":
        return work.callable
    if form == "regional":
        if not repeated_regions(work.callable):
            msg = "the model has no repeated layers"
            raise CannotRunError(msg)
        return Regional(work.callable, lambda forward: compiled_with(plan, forward))
    compiled: Callable[..., Any] = compiled_with(plan, work.callable)
    return compiled


def _captured(function: Callable[..., Any], inputs: Inputs) -> Captured:
    captured = Captured(function, Options(), precautions_for(surroundings()))
    for _ in range(3):  # the first call of a captured function is eager
        inputs.call(captured)
    report = captured.report()
    if not report.graphs:
        raise CaptureError(report.refusals[0].message if report.refusals else "nothing was captured")
    return captured


def _where() -> dict[str, str]:
    device, arch = "CPU", platform.machine()
    if torch.cuda.is_available():
        seen = torch.cuda.get_device_properties(torch.cuda.current_device())
        arch = getattr(seen, "gcnArchName", "") if torch.version.hip else f"sm_{seen.major}{seen.minor}"
        device = torch.cuda.get_device_name()
    return {
        "device": device,
        "arch": arch.partition(":")[0],
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
