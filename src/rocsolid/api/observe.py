"""Record what torch.compile does, and find graph breaks."""

from collections.abc import Callable
from typing import Any

from rocsolid.errors import UsageError
from rocsolid.model.compile_log import BreakReport, CompileLog
from rocsolid.model.workload import Workload
from rocsolid.new_torch import check_new_torch
from rocsolid.observe.break_fix import with_fixes
from rocsolid.observe.breaks import find_breaks
from rocsolid.observe.recorder import CompileRecorder
from rocsolid.torchapi.dynamo.compiled_function import is_compiled


def record_compiles() -> CompileRecorder:
    """Record every graph that is compiled while a block runs, in any thread.

    `recorder.graphs` has one entry per graph: when it was compiled, the time of each phase, the line it comes from, its operators
    and kernels, whether it came from the cache, and for a recompile the guard that failed. `recorder.breaks` lists the graph
    breaks; `recorder.log` is everything as one record.

    Example:
        >>> import rocsolid as rs, torch
        >>> with rs.record_compiles() as recorder:
        ...     _ = torch.compile(torch.nn.ReLU(), backend="eager")(torch.ones(2))
        >>> [(graph.function, graph.operators) for graph in recorder.graphs]
        [('ReLU.forward', {'relu': 1})]

    """
    check_new_torch()
    return CompileRecorder()


def compiles(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CompileLog:
    """Compile a function, call it once, and return every graph with its time, operators and kernels, and every graph break.

    To record several calls or a whole program, use `rs.record_compiles`.

    Args:
        fn: a function or module; if it is compiled already, it is called as it is.
        args: arguments of the call.
        kwargs: keyword arguments of the call.

    Example:
        >>> import rocsolid as rs, torch
        >>> log = rs.compiles(torch.compile(torch.nn.Softplus(), backend="eager"), torch.ones(2))
        >>> [graph.function for graph in log.graphs]
        ['Softplus.forward']

    """
    if not callable(fn):
        msg = f"rs.compiles needs a function or a module and its arguments; got {type(fn).__name__}"
        raise UsageError(msg)
    with record_compiles() as recorder:
        compiled_workload(Workload(name="rs.compiles", callable=fn, args=args, kwargs=kwargs))()
    return recorder.log


def breaks(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BreakReport:
    """Compile a function from scratch, call it once, and return every graph break with its line, cause and fix.

    For common causes the fix is a rewrite of your line. To check it, copies of the function and its arguments are called again, with
    and without the rewrite; where that is not possible, or the break stays, the fix is an example.

    Calls `torch._dynamo.reset()`: functions that this process compiled before are compiled again at their next call.

    Args:
        fn: a function or module, compiled or not.
        args: arguments of the call.
        kwargs: keyword arguments of the call.

    Example:
        >>> import rocsolid as rs, torch
        >>> report = rs.breaks(torch.nn.functional.one_hot, torch.tensor([1, 2]))
        >>> [found.id for found in report.breaks]
        ['GB0246']

    """
    check_new_torch()
    if not callable(fn):
        msg = f"rs.breaks needs a function or a module and its arguments; got {type(fn).__name__}"
        raise UsageError(msg)
    return with_fixes(find_breaks(fn, args, kwargs), fn, args, kwargs)


def compiled_workload(workload: Workload, *, mode: str | None = None, as_is: bool = False) -> Callable[[], Any]:
    """A call of the workload under `torch.compile`; with `as_is`, or if it is compiled already, the workload itself."""
    import torch

    if as_is or is_compiled(workload.callable):
        return workload
    compiled = torch.compile(workload.callable, mode=mode)
    return lambda: compiled(*workload.args, **workload.kwargs)
