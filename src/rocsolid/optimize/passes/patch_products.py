"""Convolutions whose windows do not overlap become matrix products.

The first layer of a vision transformer is one: each patch of the picture is a row. As a convolution it has kernels that change the layout
of its input, and one that is made for windows that overlap.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from rocsolid.optimize.passes.graph_edits import add_operator

_aten: Final = torch.ops.aten
_DTYPES: Final = (torch.float16, torch.bfloat16)


def is_patch_product(
    x: Any, weight: Any, stride: Sequence[int], padding: Any, dilation: Sequence[int], groups: int
) -> bool:
    """Return whether a convolution in half precision reads each element of `x` once."""
    window = tuple(weight.shape[2:])
    sizes = (*x.shape, *weight.shape)
    if x.dtype not in _DTYPES or x.dtype != weight.dtype or not all(isinstance(size, int) for size in sizes):
        return False
    plain = groups == 1 and not isinstance(padding, str) and not any(padding) and set(dilation) == {1}
    tiled = all(size % part == 0 for size, part in zip(x.shape[2:], window, strict=False))
    return (
        plain and x.dim() == weight.dim() and tuple(stride) == window and prod(window) > 1 and tiled and 0 not in sizes
    )


def write_out_patches(graph: Graph) -> None:
    """Replace convolutions whose windows do not overlap by a product of the matrix of all windows."""
    for node in list(graph.nodes):
        if node.target is not _aten.convolution.default or node.kwargs:
            continue
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
        if not transposed and is_patch_product(x.meta["val"], weight.meta["val"], stride, padding, dilation, groups):
            with graph.inserting_before(node):
                node.replace_all_uses_with(_product(graph, node, x, weight, bias))
            graph.erase_node(node)


def _product(graph: Graph, node: Node, x: Node, weight: Node, bias: Node | None) -> Node:
    call = partial(add_operator, graph)
    batch, channels, *sizes = x.meta["val"].shape
    outputs, _, *window = weight.meta["val"].shape
    counts = [size // part for size, part in zip(sizes, window, strict=True)]
    dimensions = range(len(window))
    places = [2 + 2 * i for i in dimensions]  # of each window, and of an element in its window
    split = call(
        _aten.reshape.default, x, [batch, channels, *(n for pair in zip(counts, window, strict=True) for n in pair)]
    )
    windows = call(_aten.permute.default, split, [0, *places, 1, *(place + 1 for place in places)])
    rows = call(_aten.reshape.default, windows, [batch * prod(counts), channels * prod(window)])
    columns = call(
        _aten.permute.default, call(_aten.reshape.default, weight, [outputs, channels * prod(window)]), [1, 0]
    )
    product = call(_aten.mm.default, rows, columns) if bias is None else call(_aten.addmm.default, bias, rows, columns)
    shaped = call(_aten.reshape.default, product, [batch, *counts, outputs])
    result = call(_aten.permute.default, shaped, [0, 1 + len(window), *(1 + i for i in dimensions)])
    if result.meta["val"].stride() != node.meta["val"].stride():  # what follows was traced with these
        result = call(_aten.clone.default, result, memory_format=torch.contiguous_format)
    return result
