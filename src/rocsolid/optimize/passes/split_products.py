"""Matrix products with few rows are computed in parts, `rocsolid.ops.split_matmul`, so that they fill the GPU."""

from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from rocsolid.ops.split_matmul import SPLIT_MATMUL, best_splits

_aten: Final = torch.ops.aten
_DTYPES: Final = (torch.float16, torch.bfloat16)
_VIEWS: Final = (
    _aten.view.default,
    _aten.reshape.default,
    _aten.permute.default,
    _aten.transpose.int,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.unsqueeze.default,
    _aten.expand.default,
    _aten.alias.default,
    _aten.split.Tensor,
    _aten.split_with_sizes.default,
    getitem,
)
# What Inductor computes in a kernel of its own, besides all operators that are tagged as pointwise.
_OWN_KERNELS: Final = (
    _aten.sum.dim_IntList,
    _aten.mean.dim,
    _aten.var_mean.correction,
    _aten.amax.default,
    _aten.amin.default,
    _aten.cat.default,
)


def suits_splitting(a: Any, b: Any) -> bool:
    """Return whether the product of these matrices is faster in parts."""
    return _splits(a, b) > 1


def _splits(a: Any, b: Any) -> int:
    sizes = (*a.shape, *b.shape)
    if a.dtype not in _DTYPES or a.dtype != b.dtype or not all(isinstance(size, int) for size in sizes):
        return 1
    return best_splits(a.shape[0], a.shape[1], b.shape[1], a.device)


def split_products(graph: Graph) -> None:
    """Replace products with few rows by the sum of their parts, which Inductor computes in the kernel that uses the product."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.kwargs or node.target not in (_aten.mm.default, _aten.addmm.default):
            continue
        bias, a, b = node.args if node.target is _aten.addmm.default else (None, *node.args)
        splits = _splits(a.meta["val"], b.meta["val"])
        if splits > 1 and _sum_needs_no_kernel(node):
            with graph.inserting_before(node):
                node.replace_all_uses_with(_sum_of_parts(graph, a, b, bias, splits))
            graph.erase_node(node)


def _sum_needs_no_kernel(product: Node) -> bool:
    """Return whether only kernels of Inductor read a product, which can add its parts, and no operator or library."""
    waiting = [product]
    while waiting:
        for user in waiting.pop().users:
            if user.target in _VIEWS:
                waiting.append(user)
            elif user.target not in _OWN_KERNELS and torch.Tag.pointwise not in getattr(user.target, "tags", ()):
                return False
    return True


def _sum_of_parts(graph: Graph, a: Node, b: Node, bias: Node | None, splits: int) -> Node:
    def call(operator: Any, *args: Any) -> Node:
        node = graph.call_function(operator, args)
        node.meta["val"] = operator(*(arg.meta["val"] if isinstance(arg, Node) else arg for arg in args))
        return node

    convert = torch.ops.prims.convert_element_type.default
    parts = call(SPLIT_MATMUL, a, b, splits)
    total = call(_aten.select.int, parts, 0, 0)
    for index in range(1, splits):
        total = call(_aten.add.Tensor, total, call(_aten.select.int, parts, 0, index))
    if bias is not None:
        total = call(_aten.add.Tensor, total, call(convert, bias, torch.float32))
    return call(convert, total, a.meta["val"].dtype)
