"""Inductor benchmarks kernels for the few matrix products that take most of the time, and not for all, which would take minutes."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Graph, Node

from rocsolid.torchapi.inductor.benchmarked_product import lower_with_benchmark

_aten: Final = torch.ops.aten
_MAX_SHAPES: Final = 3
_ENOUGH: Final = 0.8  # of the time of all products
_FLOPS_PER_BYTE: Final = 150.0  # that GPUs compute while they read one byte, in half precision


def _mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def _addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(bias, a, b)


def _operator(name: str, function: Any) -> Any:
    op = torch.library.custom_op(f"rocsolid::{name}", function, mutates_args=())
    op.register_fake(function)
    return getattr(torch.ops.rocsolid, name).default


_BENCHMARKED: Final = {
    _aten.mm.default: _operator("benchmarked_mm", _mm),
    _aten.addmm.default: _operator("benchmarked_addmm", _addmm),
}


def benchmark_products(graph: Graph) -> None:
    """Let Inductor benchmark kernels for the products of the few shapes that take most of the time."""
    products = [node for node in graph.nodes if node.target in _BENCHMARKED and not node.kwargs]
    costs: dict[tuple[str, ...], float] = {}
    for node in products:
        if (cost := _cost(node)) is not None:
            costs[_shape(node)] = costs.get(_shape(node), 0.0) + cost
    chosen: list[tuple[str, ...]] = []
    for shape in sorted(costs, key=lambda x: costs[x], reverse=True)[:_MAX_SHAPES]:
        if sum(costs[x] for x in chosen) < _ENOUGH * sum(costs.values()):
            chosen.append(shape)
    for node in products:
        if _shape(node) in chosen and lower_with_benchmark(_BENCHMARKED[node.target], node.target):
            node.target = _BENCHMARKED[node.target]


def _shape(node: Node) -> tuple[str, ...]:
    return str(node.target), *(f"{tuple(x.meta['val'].shape)} {x.meta['val'].dtype}" for x in node.all_input_nodes)


def _cost(node: Node) -> float | None:
    """Return the time of a product, in any unit: what it reads and writes, or computes. None if it has sizes that change."""
    a, b = (x.meta["val"] for x in node.args[-2:])
    if not all(isinstance(size, int) for size in (*a.shape, *b.shape)):
        return None
    (rows, inner), columns = map(int, a.shape), int(b.shape[1])
    moved = (rows * inner + inner * columns + rows * columns) * int(a.element_size())
    return float(max(moved, 2 * rows * inner * columns / _FLOPS_PER_BYTE))
