"""Matrix products with few rows are computed in parts, `rocsolid.ops.split_matmul`, so that they fill the GPU."""

from typing import Any, Final

import torch
from torch.fx import Graph, Node

from rocsolid.ops.split_matmul import SPLIT_MATMUL, best_splits

_aten: Final = torch.ops.aten
_DTYPES: Final = (torch.float16, torch.bfloat16)


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
        if splits > 1:
            with graph.inserting_before(node):
                node.replace_all_uses_with(_sum_of_parts(graph, a, b, bias, splits))
            graph.erase_node(node)


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
