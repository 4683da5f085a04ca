"""Finds the graph breaks of one call, by compiling and running it."""

from collections.abc import Callable, Mapping
from typing import Any

from rocsolid.model.compile_log import BreakReport, GraphKind
from rocsolid.observe.break_message import display_name
from rocsolid.observe.recorder import CompileRecorder
from rocsolid.torchapi.dynamo.compiled_function import freshly_compiled, original_function
from rocsolid.torchapi.user_frames import is_torch_file, is_user_file


def find_breaks(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: str = "inductor",
    as_is: bool = False,
) -> BreakReport:
    """Compile the function from scratch, call it once, and return its graph breaks.

    With `as_is` the function is called as it is: the breaks are those of the parts that it compiles itself. Resets Dynamo first, as `torch._dynamo.explain` does: for a frame that is compiled already, Dynamo reports no breaks.
    """
    original = original_function(function)
    with (
        freshly_compiled(*((function, None) if as_is else (original, backend))) as compiled,
        CompileRecorder() as recorder,
    ):
        try:
            compiled(*args, **(kwargs or {}))
        except Exception:
            # A failed compile is reported as a fatal break; any other error comes from the user's function.
            if not any(found.fatal for found in recorder.breaks):
                raise
    log = recorder.log
    name = getattr(original, "__qualname__", type(original).__qualname__)
    return BreakReport(
        function=display_name(str(name)),
        torch=log.torch,
        breaks=tuple(found for found in log.breaks if not _is_of_a_tool(found.location)),
        # The cache may also return a backward graph, which is not part of this call.
        graphs=tuple(graph for graph in log.graphs if graph.kind is not GraphKind.BACKWARD),
        uncompiled=tuple(frame for frame in log.uncompiled if is_user_file(frame.location.rpartition(":")[0])),
        backend=backend,
    )


def _is_of_a_tool(location: str) -> bool:
    """Return whether a line is in Python's standard library or in rocsolid: Dynamo also traces what the compile itself calls."""
    file = location.rpartition(":")[0]
    return not is_user_file(file) and not is_torch_file(file)
