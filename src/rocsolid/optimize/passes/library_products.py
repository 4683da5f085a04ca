"""Matrix products with another library than torch would choose, on ROCm: hipBLASLt, rocBLAS, AITER, or the kernel that TunableOp finds.

torch chooses the library for the whole process. Here an operator chooses it for its own product, so that the rest of the program is not
changed. Not yet run on an AMD GPU.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Graph, Node

from rocsolid.ops.shipped import aiter_kernels

_aten: Final = torch.ops.aten


@contextmanager
def _preferred(library: str) -> Iterator[None]:
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(library)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


@contextmanager
def _tuned() -> Iterator[None]:
    """Let TunableOp choose the kernel. New shapes are tuned, except during a capture, which would fail."""
    tunable = torch.cuda.tunable
    before = tunable.is_enabled(), tunable.tuning_is_enabled()
    tunable.enable(True)
    tunable.tuning_enable(not torch.cuda.is_current_stream_capturing())
    try:
        yield
    finally:
        tunable.enable(before[0])
        tunable.tuning_enable(before[1])


_CHOOSE: Final[Mapping[str, Callable[[], AbstractContextManager[None]]]] = {
    "hipblaslt": partial(_preferred, "hipblaslt"),
    "hipblas": partial(_preferred, "hipblas"),
    "aiter": nullcontext,
    "tunableop": _tuned,
}


def _library_product(a: Tensor, b: Tensor, bias: Tensor | None, library: str) -> Tensor:
    """Return `a @ b + bias`, computed by a library."""
    if library == "aiter" and aiter_kernels.supports(a, b):
        result: Tensor = aiter_kernels.OPERATORS["linear"](a, b.t(), bias)
        return result
    with _CHOOSE[library]():
        return torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)


def _fake(a: Tensor, b: Tensor, *_: object) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


_op: Any = torch.library.custom_op("rocsolid::library_product", _library_product, mutates_args=())
_op.register_fake(_fake)
LIBRARY_PRODUCT: Final = torch.ops.rocsolid.library_product.default


def _use(graph: Graph, library: str) -> None:
    for node in list(graph.nodes):
        if node.op != "call_function" or node.kwargs or node.target not in (_aten.mm.default, _aten.addmm.default):
            continue
        bias, a, b = node.args if node.target is _aten.addmm.default else (None, *node.args)
        if isinstance(bias, Node) and bias.meta["val"].dim() != 1:
            continue
        with graph.inserting_before(node):
            product = graph.call_function(LIBRARY_PRODUCT, (a, b, bias, library))
        product.meta.update(node.meta)
        node.replace_all_uses_with(product)
        graph.erase_node(node)


def use_hipblaslt(graph: Graph) -> None:
    """Compute matrix products with hipBLASLt."""
    _use(graph, "hipblaslt")


def use_hipblas(graph: Graph) -> None:
    """Compute matrix products with rocBLAS."""
    _use(graph, "hipblas")


def use_aiter(graph: Graph) -> None:
    """Compute matrix products in half precision with the kernels that AITER has tuned."""
    _use(graph, "aiter")


def use_tunableop(graph: Graph) -> None:
    """Compute matrix products with the kernel that TunableOp finds."""
    _use(graph, "tunableop")


LIBRARIES: Final = {"hipblaslt": use_hipblaslt, "hipblas": use_hipblas, "aiter": use_aiter, "tunableop": use_tunableop}
