"""Our own passes over the graphs of `torch.compile`, as options of Inductor.

`post_grad_custom_pre_pass` gets a graph of ATen operators without writes and without autograd; `pre_grad_custom_pass` gets the calls
as the user wrote them, so `scaled_dot_product_attention` is still one node there.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from rocsolid.torchapi.private_api import private_name

Rewrite = Callable[[Any], None]  # a function of a module, which changes a `torch.fx.Graph` in place

_PASS = private_name(
    "torch._inductor.custom_graph_pass",
    "CustomGraphPass",
    "2.6..",
    without="rs.optimize: graph passes of rocsolid are not tried",
)


def passes_supported() -> bool:
    """Return whether this torch takes passes that its cache of compiled graphs knows by an id."""
    return _PASS.find() is not None


def graph_pass(rewrite: Rewrite) -> Any:
    """Return a function as a pass for Inductor. Its id in torch's caches is the source of the function's module."""
    return _pass_class()(rewrite)


@cache
def _pass_class() -> Any:
    base: Any = _PASS.get()

    class GraphPass(base):  # type: ignore[misc]
        def __init__(self, rewrite: Rewrite) -> None:
            self.rewrite = rewrite

        def __call__(self, graph: Any) -> None:
            self.rewrite(graph)

        def uuid(self) -> str:
            source = inspect.getsource(sys.modules[self.rewrite.__module__])
            return hashlib.sha256(f"{self.rewrite.__qualname__}\n{source}".encode()).hexdigest()

        def __eq__(self, other: object) -> bool:  # Dynamo reuses code that was compiled with equal options
            return isinstance(other, GraphPass) and other.rewrite is self.rewrite

        def __hash__(self) -> int:
            return hash(self.rewrite)

        def __reduce__(self) -> Any:
            return graph_pass, (self.rewrite,)

    return GraphPass
