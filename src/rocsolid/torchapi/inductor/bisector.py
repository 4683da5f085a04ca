"""Switches parts of the compiler off one by one, with the hooks of torch's own compiler bisector.

Torch's bisector keeps its state in files and runs the search itself, in this process. Here only its hooks are used: the search is ours,
and every trial runs in a child process.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from rocsolid.torchapi.private_api import private_name

_BISECTOR = private_name(
    "torch._inductor.compiler_bisector",
    "CompilerBisector",
    "2.7..",
    without="rocsolid verify --bisect: the search ends at the layer",
)
_LOOKUP_BACKEND = private_name(
    "torch._dynamo",
    "lookup_backend",
    "2.9..",
    without="rocsolid verify --bisect: with several graphs, the wrong one is not named",
)
_FILE_LINE: Final = re.compile(r'File "([^"]+)", line (\d+)')


@contextmanager
def limited(subsystem: str, limit: int | None) -> Iterator[list[tuple[str, str]]]:
    """Apply only the first `limit` parts of a subsystem; with None, all. Yields all parts in order: the name, and the user's line if known.

    With a limit, compiles inside the block do not use torch's cache of graphs.
    """
    seen: list[tuple[str, str]] = []
    bisector = _BISECTOR.find() if limit is not None else None
    if limit is None or bisector is None:
        yield seen
        return

    def disable(_backend: str, name: str, debug_info: Callable[[], str] | None = None) -> bool:
        if name != subsystem:
            return False
        seen.append(_describe(debug_info) if debug_info is not None else (name, ""))
        return len(seen) > limit

    original, enabled = vars(bisector)["disable_subsystem"], bisector.bisection_enabled
    bisector.disable_subsystem, bisector.bisection_enabled = staticmethod(disable), True
    try:
        yield seen
    finally:
        bisector.disable_subsystem, bisector.bisection_enabled = original, enabled


def _describe(debug_info: Callable[[], str]) -> tuple[str, str]:
    """Return the operator and the user's line. Torch's hook returns a text; the function behind it holds the node of the graph."""
    for cell in getattr(debug_info, "__closure__", None) or ():
        node = cell.cell_contents
        if hasattr(node, "target") and hasattr(node, "meta"):
            lines = _FILE_LINE.findall(node.meta.get("stack_trace") or "")
            return str(node.target), ":".join(lines[-1]) if lines else ""
    return debug_info(), ""


def only_graph(number: int, backend: str) -> Callable[..., Any]:
    """Return a backend that compiles only the graph with this number, and runs the others as traced."""
    compile_graph = _LOOKUP_BACKEND.get()(backend)
    numbers = count()

    def compile_one(graph: Any, inputs: Any) -> Any:
        return compile_graph(graph, inputs) if next(numbers) == number else graph.forward

    return compile_one


def reset_compiler() -> None:
    """Forget everything that was compiled in this process."""
    import torch

    torch.compiler.reset()
