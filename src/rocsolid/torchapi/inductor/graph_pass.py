"""Our own passes over the graphs of `torch.compile`, as options of Inductor.

`post_grad_custom_pre_pass` gets a graph of ATen operators without writes and without autograd; `pre_grad_custom_pass` gets the calls
as the user wrote them, so `scaled_dot_product_attention` is still one node there.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
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


def graph_pass(*rewrites: Rewrite) -> Any:
    """Return functions, which run one after the other, as a pass for Inductor. Its id in torch's caches is the source of their modules."""
    return _pass_class()(rewrites)


def _modules_of(rewrite: Rewrite) -> Iterator[str]:
    """Yield the module of a function, and those of the same package that it imports functions from."""
    yield rewrite.__module__
    package = rewrite.__module__.partition(".")[0]
    for imported in vars(sys.modules[rewrite.__module__]).values():
        if inspect.isfunction(imported) and (imported.__module__ or "").partition(".")[0] == package:
            yield imported.__module__


@cache
def _pass_class() -> Any:
    base: Any = _PASS.get()

    class GraphPass(base):  # type: ignore[misc]
        def __init__(self, rewrites: tuple[Rewrite, ...]) -> None:
            self.rewrites = rewrites

        def __call__(self, graph: Any) -> None:
            for rewrite in self.rewrites:
                rewrite(graph)

        def uuid(self) -> str:
            modules = dict.fromkeys(name for r in self.rewrites for name in _modules_of(r))
            parts = [*(r.__qualname__ for r in self.rewrites), *(inspect.getsource(sys.modules[x]) for x in modules)]
            return hashlib.sha256("\n".join(parts).encode()).hexdigest()

        def __eq__(self, other: object) -> bool:  # Dynamo reuses code that was compiled with equal options
            return isinstance(other, GraphPass) and other.rewrites == self.rewrites

        def __hash__(self) -> int:
            return hash(self.rewrites)

        def __reduce__(self) -> Any:
            return graph_pass, self.rewrites

    return GraphPass
