"""Finds the graph breaks of one call, by compiling and running it."""

from collections.abc import Callable, Mapping
from typing import Any

from rocsolid.model.compile_log import BreakReport, GraphKind
from rocsolid.observe.build_log import shown_name
from rocsolid.observe.recorder import CompileRecorder
from rocsolid.torchapi.dynamo.compiled_function import freshly_compiled, original_function


def find_breaks(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: str = "inductor",
) -> BreakReport:
    """Compile the function from scratch, call it once, and tell where its graph broke.

    What this process has compiled before is forgotten, as `torch._dynamo.explain` does it: a frame that is known already would
    be passed over in silence.
    """
    plain = original_function(function)
    with freshly_compiled(plain, backend) as compiled, CompileRecorder() as recorder:
        try:
            compiled(*args, **(kwargs or {}))
        except Exception:
            # A compile that fails outright is the worst of breaks; anything else is the user's own error.
            if not any(found.fatal for found in recorder.breaks):
                raise
    log = recorder.log
    name = getattr(plain, "__qualname__", type(plain).__qualname__)
    return BreakReport(
        function=shown_name(str(name)),
        torch=log.torch,
        breaks=log.breaks,
        # A backward graph may come along from the cache; the call falls into the others.
        graphs=tuple(graph for graph in log.graphs if graph.kind is not GraphKind.BACKWARD),
        uncompiled=log.uncompiled,
        backend=backend,
    )
