"""Measure one variant in a trial's process: load the workload, build the variant, check its results, then time it."""

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
from rocsolid.measure.clock import Clock, calls_per_sample, pinnable_cores, pinned_to_core, select_clock
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.codec import decode
from rocsolid.model.form import Form
from rocsolid.model.plan import Plan
from rocsolid.model.workload import Workload
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.regional_compile import RegionalModel, repeated_layers
from rocsolid.tune.check_results import CallInputs, ResultChecker
from rocsolid.tune.isolate.trial_process import Reporter
from rocsolid.tune.multi_rank import OtherRanks, follow_rank_0, run_rank

_RANK_PROGRAM: Final = "rocsolid.tune.run_variant:run_other_rank"
_SAMPLES: Final = 8  # of a trial
_ROUND_MS: Final = 60.0  # roughly how long all turns of a variant in one round take together
_MIN_SAMPLE_MS: Final = 1.0  # a shorter sample counts as this long when the number of samples is computed
_MAX_PAUSE_S: Final = 0.03  # before a turn
_NEEDS_GRAD: Final = "does not require grad and does not have a grad_fn"
_CHECKED_REPLAYS: Final = 20  # calls of a captured variant whose results are checked


@dataclass(frozen=True, kw_only=True)
class PreparedVariant:
    """A variant that is set up and whose results were checked."""

    checker: ResultChecker
    function: Callable[..., Any]
    setup_s: float
    checked: str
    relative_error: float | None

    def call(self) -> None:
        """Call the variant once, with the user's inputs."""
        self.checker.user_inputs.call(self.function)


def measure(
    reporter: Reporter,
    *,
    grad: bool = False,
    cold: bool = False,
    on_request: bool = False,
    turns: int = 1,
    ranks: int = 1,
    **variant: Any,
) -> dict[str, Any]:
    """Measure one variant; with `on_request`, take samples when the tuner requests them, until it closes the trial."""
    reporter.phase("build")
    others = OtherRanks(reporter, ranks, _RANK_PROGRAM, {**variant, "grad": grad})
    try:
        with nullcontext() if grad else torch.no_grad():
            prepared = _prepare(reporter.phase, **variant)
            return _measure_prepared(reporter, prepared, others, cold=cold, turns=turns if on_request else 0)
    except Exception as error:
        others.wait_for_their_error()
        if not grad and _NEEDS_GRAD in str(error):
            msg = "the workload calls backward(), and gradients are off: give --grad (in Python grad=True) for a training step"
            raise CannotRunError(msg) from error
        raise


def _measure_prepared(
    reporter: Reporter, prepared: PreparedVariant, others: OtherRanks, *, cold: bool, turns: int
) -> dict[str, Any]:
    """Take a fixed number of samples; with `turns` > 0, take samples on request, each as one of so many turns in a round."""
    reporter.phase("measure")
    clock = select_clock(cold=cold)

    def call() -> None:
        others.call()
        prepared.call()

    take_turn = _turn_timer(clock, call, turns or 1)
    samples = []
    if turns:
        reporter.serve(lambda _: take_turn())
    else:
        samples = [take_turn() for _ in range(_SAMPLES)]
    reporter.phase("verify")
    others.check()
    prepared.checker.check(prepared.function)  # results may become wrong after many calls
    _write_tunableop_results()
    return {
        "samples_ms": samples,
        "clock": clock.name,
        "setup_s": prepared.setup_s,
        "peak_bytes": max(_peak_bytes(), others.finish()),
        "checked": prepared.checked,
        "relative_error": prepared.relative_error,
        **_machine(),
    }


def run_other_rank() -> None:
    """The main program of a rank other than 0."""
    run_rank(_follow)


def _follow(params: Mapping[str, Any], commands: int) -> int:
    """Prepare the same variant, then call and check it whenever rank 0 does; returns the peak device memory in bytes."""
    variant = dict(params)
    with nullcontext() if variant.pop("grad") else torch.no_grad():
        prepared = _prepare(lambda _: None, **variant)
        follow_rank_0(commands, prepared.call, lambda: prepared.checker.check(prepared.function))
    return _peak_bytes()


def _prepare(
    on_phase: Callable[[str], None], *, workload: str, plan: Mapping[str, Any], form: str, graph: bool
) -> PreparedVariant:
    loaded = load_workload(workload)
    checker = ResultChecker(loaded)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # the reference results are not part of the variant
    started = time.perf_counter()
    on_phase("compile")
    function = _build_form(decode(Plan, dict(plan), "plan"), loaded, Form.of(form))
    checker.user_inputs.call(function)
    if graph and checker.user_inputs.on_device:
        on_phase("capture")
        function = _capture(function, checker.user_inputs)
    setup_s = time.perf_counter() - started
    on_phase("verify")
    checked, relative_error = checker.check(function, _CHECKED_REPLAYS if graph else 1)
    return PreparedVariant(
        checker=checker, function=function, setup_s=setup_s, checked=checked, relative_error=relative_error
    )


def _write_tunableop_results() -> None:
    """Write TunableOp's results. Some torch releases write them when the process exits normally, which a trial does not do."""
    if torch.cuda.is_available() and torch.cuda.tunable.is_enabled():
        write = getattr(torch.cuda.tunable, "write_file", None)
        if write is not None:
            write()


def _peak_bytes() -> int:
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


def _turn_timer(clock: Clock, call: Callable[[], None], turns: int = 1) -> Callable[[], float]:
    """Return a function that takes one turn: a short random pause, then a few samples, combined into one time in milliseconds.

    The pause makes the turns more independent: what disturbs one sample often disturbs the next one, too. On the host, other
    programs only ever make a call slower, so the minimum is closest to the true time. GPU events err in both directions, so on a GPU
    the median is used.

    Other programs on the host start and stop within a second, and slow down single cores. So each of many short turns is pinned to
    one core. All processes choose the cores with the same seed, so the turns that are compared run on the same core.

    The number of calls in a turn is determined in the first turn. Earlier, other processes of the race may still be compiling.
    """
    combine: Callable[[Iterable[float]], float] = min if clock.name == "host" else median

    @cache
    def calls_and_samples() -> tuple[int, int]:
        """The calls in a sample, and the samples in a turn."""
        calls = calls_per_sample(call, warmups=3)
        sample_ms = max(min(clock.sample(call, calls) for _ in range(3)) * calls, _MIN_SAMPLE_MS)
        return calls, max(1, int(_ROUND_MS / turns / sample_ms))

    cores: list[int | None] = [*pinnable_cores()] if clock.name == "host" and turns > 1 else []
    rng = random.Random(0)  # noqa: S311 - not used for security

    def take_turn() -> float:
        time.sleep(rng.uniform(0, _MAX_PAUSE_S / turns))
        calls, samples = calls_and_samples()
        with pinned_to_core(rng.choice(cores or [None])):
            call()  # other processes have used the caches since the last turn
            return combine(clock.sample(call, calls) for _ in range(samples))

    return take_turn


def _build_form(plan: Plan, workload: Workload, form: Form) -> Callable[..., Any]:
    if form is Form.EAGER:
        return workload.callable
    if form is Form.REGIONAL:
        if not repeated_layers(workload.callable):
            msg = "the model has no repeated layers, so form=regional does not apply"
            raise CannotRunError(msg)
        return RegionalModel(workload.callable, lambda forward: compile_with_plan(plan, forward))
    compiled: Callable[..., Any] = compile_with_plan(plan, workload.callable)
    return compiled


def _capture(function: Callable[..., Any], inputs: CallInputs) -> Captured:
    captured = Captured(function, Options(), precautions_for(quick_environment()))
    for _ in range(3):  # the first call of a captured function runs in eager
        inputs.call(captured)
    report = captured.report()
    if not report.graphs:
        raise CaptureError(report.refusals[0].message if report.refusals else "no graph was captured")
    return captured


def _machine() -> dict[str, str]:
    device, arch = "CPU", platform.machine()
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        arch = (
            getattr(properties, "gcnArchName", "") if torch.version.hip else f"sm_{properties.major}{properties.minor}"
        )
        device = torch.cuda.get_device_name()
    return {
        "device": device,
        "arch": arch.partition(":")[0],
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
