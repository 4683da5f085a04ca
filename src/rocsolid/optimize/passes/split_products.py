"""Matrix products with few rows in rocsolid's kernels.

They are computed in parts, `rocsolid.ops.split_matmul`, so that they fill the GPU, if the sum of the parts needs no kernel of its own;
otherwise whole, by `rocsolid.ops.linear_act`.
"""

from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from rocsolid.ops.linear_act import LINEAR_ACT, suits
from rocsolid.ops.split_matmul import SPLIT_MATMUL, best_splits
from rocsolid.optimize.passes.graph_edits import add_operator

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
_MAX_COLUMNS: Final = 8192  # more fill the GPU with the kernels of torch


def has_few_rows(a: Any, b: Any) -> bool:
    """Return whether the product of these matrices is faster with our kernels."""
    return _splits(a, b) > 1 or _suits_whole(a, b)


def _suits_whole(a: Any, b: Any) -> bool:
    return bool(b.shape[1] <= _MAX_COLUMNS and suits(a, b.t(), "none"))


def _splits(a: Any, b: Any) -> int:
    sizes = (*a.shape, *b.shape)
    if a.dtype not in _DTYPES or a.dtype != b.dtype or not all(isinstance(size, int) for size in sizes):
        return 1
    return best_splits(a.shape[0], a.shape[1], b.shape[1], a.device)


def split_products(graph: Graph) -> None:
    """Replace products with few rows by the sum of their parts, which Inductor computes in the kernel that uses it, or by one operator."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.kwargs or node.target not in (_aten.mm.default, _aten.addmm.default):
            continue
        bias, a, b = node.args if node.target is _aten.addmm.default else (None, *node.args)
        splits = _splits(a.meta["val"], b.meta["val"])
        with graph.inserting_before(node):
            if splits > 1 and _sum_needs_no_kernel(node):
                product = _sum_of_parts(graph, a, b, bias, splits)
            elif _is_vector(bias, b) and _suits_whole(a.meta["val"], b.meta["val"]):
                product = add_operator(
                    graph, LINEAR_ACT, a, add_operator(graph, _aten.permute.default, b, [1, 0]), bias, "none"
                )
            else:
                continue
        node.replace_all_uses_with(product)
        graph.erase_node(node)


def _is_vector(bias: Node | None, b: Node) -> bool:
    """Return whether there is a number for each column, or none."""
    return bias is None or tuple(bias.meta["val"].shape) == (b.meta["val"].shape[1],)


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
    convert = torch.ops.prims.convert_element_type.default
    parts = add_operator(graph, SPLIT_MATMUL, a, b, splits)
    total = add_operator(graph, _aten.select.int, parts, 0, 0)
    for index in range(1, splits):
        total = add_operator(graph, _aten.add.Tensor, total, add_operator(graph, _aten.select.int, parts, 0, index))
    if bias is not None:
        total = add_operator(graph, _aten.add.Tensor, total, add_operator(graph, convert, bias, torch.float32))
    return add_operator(graph, convert, total, a.meta["val"].dtype)
