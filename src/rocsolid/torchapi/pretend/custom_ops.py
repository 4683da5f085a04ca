"""Runs the Python implementation of custom operators on fake tensors, so that the kernels it launches are recorded.

A fake tensor otherwise calls only the operator's `register_fake` function, which launches nothing.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rocsolid.torchapi.dispatch import DISPATCH_MODE

_KEYS: Final = ("CUDA", "CompositeExplicitAutograd", "")  # where a GPU operator is implemented
Implementations = Mapping[str, Callable[..., Any]]


def record_implementations() -> Implementations:
    """Record each implementation that is registered from now on, by operator name such as `vllm::all_reduce`."""
    import torch

    found: dict[str, Callable[..., Any]] = {}
    register = torch.library.Library.impl

    def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        if dispatch_key in _KEYS and library.ns not in ("aten", "prims"):
            name = op_name if isinstance(op_name, str) else op_name.name()
            found[f"{library.ns}::{name.rpartition('::')[2].partition('.')[0]}"] = fn
        return register(library, op_name, fn, dispatch_key, **options)

    torch.library.Library.impl = impl
    return found


def run_graph_operators(module: Any, implementations: Implementations) -> None:
    """Run the implementation of every custom operator in a graph, on the fake tensors of its nodes."""
    from torch.fx.node import map_arg

    for node in module.graph.nodes:
        implementation = implementations.get(_name(node.target))
        if implementation is None:
            continue
        args, kwargs = map_arg((node.args, node.kwargs), lambda argument: argument.meta.get("val"))
        modes = [value.fake_mode for value in (*args, *kwargs.values()) if hasattr(value, "fake_mode")]
        with modes[0] if modes else contextlib.nullcontext():
            _run(implementation, args, kwargs)


@contextlib.contextmanager
def run_called_operators(implementations: Implementations) -> Iterator[None]:
    """Run the implementation of every custom operator that is called outside a graph."""
    mode = DISPATCH_MODE.find()
    if mode is None:
        yield
        return

    class RunImplementations(mode):  # type: ignore[misc, valid-type]
        @classmethod
        def is_infra_mode(cls) -> bool:  # Dynamo skips frames under other modes
            return True

        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if (implementation := implementations.get(_name(func))) is not None:
                _run(implementation, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    with RunImplementations():
        yield


def _name(operator: Any) -> str:
    return str(operator.name()).partition(".")[0] if hasattr(operator, "overloadpacket") else ""


def _run(implementation: Callable[..., Any], args: Any, kwargs: Any) -> None:
    with contextlib.suppress(Exception):  # it may call a library that is not present; launches up to then are recorded
        implementation(*args, **kwargs)
