"""Marks captures and replays of graphs in profiler traces, so that `rocsolid trace` can find the capture of a replay."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from rocsolid.torchapi.private_api import private_name

_PROFILER_ENABLED = private_name(
    "torch.autograd",
    "_profiler_enabled",
    "2.0..",
    without="rs.capture(annotate=): captures are not written, and replays are not marked in traces",
)
_NOT_MARKED: Final = "rocsolid profile: graphs that rs.capture did not capture are not marked in the trace"
_HOOKS: Final = {
    stage: private_name("torch.cuda.graphs", f"register_graph_{stage}_hook", "2.14..", without=_NOT_MARKED)
    for stage in ("capture_start", "capture_end", "replay_start", "replay_end")
}


def profiler_check() -> Callable[[], bool] | None:
    """Return a function that tells whether a profiler is running in this thread; None where torch does not tell."""
    found: Callable[[], bool] | None = _PROFILER_ENABLED.find()
    return found


def mark_text(number: int) -> str:
    """Return the name of a mark. `trace.analysis.capture_origins` reads it."""
    return f"rocsolid graph {number:x}"


@contextmanager
def graphs_marked() -> Iterator[None]:
    """Mark the captures and replays of all CUDA graphs in the block. Does nothing before torch 2.14."""
    hooks = {stage: name.find() for stage, name in _HOOKS.items()}
    if not all(hooks.values()):
        yield
        return
    from torch.profiler import record_function

    running: dict[int, Any] = {}

    def start(graph: Any) -> None:
        mark = record_function(mark_text(id(graph)))
        mark.__enter__()
        running[id(graph)] = mark

    def end(graph: Any) -> None:
        mark = running.pop(id(graph), None)
        if mark is not None:
            mark.__exit__(None, None, None)

    with ExitStack() as stack:
        for stage, register in hooks.items():
            if register is not None:
                stack.callback(register(start if stage.endswith("start") else end).remove)
        yield
