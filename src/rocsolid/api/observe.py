"""Watch what the compiler does, and find where it has to stop."""

from collections.abc import Callable
from typing import Any

from rocsolid.model.compile_log import BreakReport
from rocsolid.model.workload import Workload
from rocsolid.observe.breaks import find_breaks
from rocsolid.observe.recorder import CompileRecorder
from rocsolid.torchapi.dynamo.compiled_function import is_compiled


def record_compiles() -> CompileRecorder:
    """Hear of every graph that is compiled while a block runs, in whichever thread.

    `recorder.graphs` has an entry for each: when, how long in each phase, from which line, its operators and kernels, whether it
    came from the cache, and which guard made it necessary. `recorder.log` is all of it as one record.

    Example:
        >>> import rocsolid as rs, torch
        >>> with rs.record_compiles() as recorder:
        ...     _ = torch.compile(torch.nn.ReLU(), backend="eager")(torch.ones(2))
        >>> [(graph.function, graph.operators) for graph in recorder.graphs]
        [('ReLU.forward', {'relu': 1})]

    """
    return CompileRecorder()


def breaks(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BreakReport:
    """Compile a function afresh, call it once, and tell every graph break: its place, its cause, its fix.

    What this process has compiled before is forgotten and compiled again when it is next called.

    Args:
        fn: a function or module, compiled already or not.
        args: passed on.
        kwargs: passed on.

    Example:
        >>> import rocsolid as rs, torch
        >>> report = rs.breaks(torch.nn.functional.one_hot, torch.tensor([1, 2]))
        >>> [(found.id, found.fix) for found in report.breaks]
        [('GB0246', '`F.one_hot(labels, num_classes=N)`')]

    """
    return find_breaks(fn, args, kwargs)


def compiled_workload(workload: Workload, *, mode: str | None = None, as_is: bool = False) -> Callable[[], Any]:
    """A call of the workload under `torch.compile`, unless it is compiled already or is to be called as it is."""
    import torch

    if as_is or is_compiled(workload.callable):
        return workload
    compiled = torch.compile(workload.callable, mode=mode)
    return lambda: compiled(*workload.args, **workload.kwargs)
