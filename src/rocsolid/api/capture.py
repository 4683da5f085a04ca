"""`rs.capture`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.capture_precautions import Precautions, precautions_for
from rocsolid.errors import UsageError
from rocsolid.model.bucket import Bucket
from rocsolid.probe.pretended import pretended_chip
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.runtime.capture.call import Call
from rocsolid.runtime.capture.captured import Captured, CapturedModule, captured_module
from rocsolid.runtime.capture.options import (
    Options,
    Verify,
    parse_annotate,
    parse_buckets,
    parse_eager_modules,
    parse_verify,
)
from rocsolid.runtime.wrapped_module import refuse_distributed_wrapper

_CHILD_DEADLINE_S: Final = 600.0


def capture(  # noqa: PLR0913 - each is one decision, and all have defaults
    fn: Callable[..., Any] | None = None,
    *,
    outputs: str = "clone",
    on_error: str = "eager",
    max_graphs: int = 8,
    memory_budget_bytes: int | None = None,
    pool: str = "auto",
    buckets: Mapping[str, Bucket | Sequence[Bucket]] | None = None,
    unpad: str = "auto",
    static: Sequence[str] = (),
    verify: str | Verify = "first",
    rtol: float | None = None,
    atol: float | None = None,
    generators: Sequence[Any] = (),
    warmups: int = 3,
    backend: str = "auto",
    eager_modules: str | Sequence[Any] = "auto",
    backward: bool = False,
    keep_graph: bool = False,
    annotate: bool | str | Path = False,
    simulate: str = "",
) -> Any:
    """Capture the calls of a function as CUDA or HIP graphs, verify them against eager, and replay them.

    The first call with a new input signature (structure, shapes, dtypes, constants, grad mode and so on) runs in eager and is
    captured; later calls replay. A call that cannot be captured runs in eager, and `report()` says why.

    Args:
        fn: any callable or module; when left out, a decorator is returned.
        outputs: 'clone' returns new tensors; 'alias' returns tensors in the graph's memory, valid until the next call; 'out'
            fills the tensors passed as `out=`.
        on_error: 'eager' runs a call that cannot be captured in eager; 'raise' raises CaptureError.
        max_graphs: how many graphs are kept; beyond that, the least recently used one is evicted.
        memory_budget_bytes: how much memory all graphs together may hold.
        pool: 'shared' uses one memory pool for all graphs, 'per-graph' one for each graph; 'auto' is per graph on ROCm and
            shared on CUDA.
        buckets: sizes to pad a dimension of an argument to, by the argument's name.
        unpad: 'auto' unpads the results that depend on a bucketed length; 'never' returns them padded.
        static: names of arguments that never change; a call must pass the same objects.
        verify: 'first' compares replays with eager before the first replay's result is returned; `rs.every(n)` also compares
            every n calls; 'off' never compares.
        rtol: allowed relative difference between a replay and eager; depends on the dtype when left out.
        atol: allowed absolute difference; none when left out.
        generators: your own random number generators that the function draws from.
        warmups: number of warm-up runs before the capture.
        backend: 'device' (GPU graphs), 'record' (recorded operators on the CPU, for tests without a GPU), 'eager', or 'auto'.
        eager_modules: names of modules that run in eager between the graphs of the rest. 'auto' finds those that cannot be
            captured; `()` allows none.
        backward: capture the backward pass too, so that training steps replay.
        keep_graph: keep what `debug_dump` needs to write a GPU graph; costs some CPU memory.
        annotate: write a profiler trace of each capture to this folder (True: `rocsolid-captures`) and mark replays in
            your own traces, for `rocsolid trace replay.json --capture FOLDER`. Captures take longer.
        simulate: 'hip-6.4', 'hip-7.2' or 'cuda': apply the capture rules of that runtime; requires backend='record'.
            Under `rs.pretend` the runtime of the pretended chip is simulated unless a backend is named.

    Example:
        >>> import rocsolid as rs, torch
        >>> double = rs.capture(lambda x: x * 2, backend="record")
        >>> [double(torch.ones(2) * n).tolist() for n in (1, 2)]
        [[2.0, 2.0], [4.0, 4.0]]
        >>> double.report().replays
        1

    """
    pretended = pretended_chip()
    if pretended and backend == "auto" and not simulate:
        from rocsolid.catalog.capture_rules import nearest_runtime

        backend, simulate = "record", nearest_runtime(pretended.chip.platform, pretended.release).value
    options = Options(
        outputs=outputs,
        on_error=on_error,
        max_graphs=max_graphs,
        memory_budget_bytes=memory_budget_bytes,
        pool=pool,
        buckets=parse_buckets(buckets),
        unpad=unpad,
        static=tuple(static),
        verify=parse_verify(verify),
        rtol=rtol,
        atol=atol,
        generators=tuple(generators),
        warmups=warmups,
        backend=backend,
        eager_modules=parse_eager_modules(eager_modules),
        backward=backward,
        keep_graph=keep_graph,
        annotate=parse_annotate(annotate),
        simulate=simulate,
    )
    precautions = precautions_for(quick_environment())
    if precautions.min_verify_rounds > options.verify.rounds:
        options = replace(options, verify=replace(options.verify, rounds=precautions.min_verify_rounds))
    if options.backend == "record":
        precautions = replace(precautions, try_in_child=False)  # recording operators cannot end the process
    captured_class = Captured
    if simulate:
        from rocsolid.runtime.capture.backends.simulated_runtime import SimulatedCaptured

        captured_class = SimulatedCaptured

    def make(fn: Any) -> Any:
        import torch

        if isinstance(fn, CapturedModule):
            fn = fn.__rocsolid_function__  # captured with other options: the module inside
        if not callable(fn):
            msg = f"rs.capture needs a callable or a module; got {type(fn).__name__}"
            raise UsageError(msg)
        refuse_distributed_wrapper(fn, "rs.capture")
        captured = captured_class(fn, options, precautions, _try_in_child)
        return captured_module(captured) if isinstance(fn, torch.nn.Module) else captured

    return make if fn is None else make(fn)


def _try_in_child(function: Callable[..., Any], call: Call, options: Options, precautions: Precautions) -> str:
    """Capture the call in a child process. Returns what went wrong; empty when it worked or cannot be tried."""
    from rocsolid.api.safety import try_in_child_process

    work = {
        "capture": replace(options, annotate="", undo_writes=None),
        "precautions": replace(precautions, try_in_child=False),
    }
    return try_in_child_process("capturing", work, (function, call.args, call.kwargs), _CHILD_DEADLINE_S)
