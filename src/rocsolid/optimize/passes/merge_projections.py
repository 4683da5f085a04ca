"""Linear layers of one input (Q, K and V; gate and up) become one layer, whose weights are `rocsolid.ops.joined_weights`.

Before autograd the layers become one that concatenates their weights. So the strides of its slices are those that everything after it
is traced with. After autograd the concatenation becomes a view, and the product is one that Inductor knows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from rocsolid.ops.joined_weights import JOINED_WEIGHTS, are_adjacent, make_adjacent
from rocsolid.ops.linear_act import LINEAR_ACT
from rocsolid.optimize.passes.graph_edits import (
    accepts,
    add_call,
    erase_unused,
    linear_layer,
    nothing_written,
    value,
)

_aten: Final = torch.ops.aten
_PRODUCTS: Final = (_aten.mm.default, _aten.addmm.default, LINEAR_ACT)
_TRANSPOSES: Final = (_aten.permute.default, _aten.t.default, _aten.transpose.int)


class SharedInputs:
    """Finds the linear layers of a model that get the same input, while the model runs in eager."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Any, list[Any]]] = {}  # by the id of the input, which is kept alive

    @contextmanager
    def watch(self, model: Any) -> Iterator[None]:
        """Record the inputs of all `nn.Linear` inside the block; nothing for a function."""
        layers = [m for m in model.modules() if type(m) is torch.nn.Linear] if _is_module(model) else []
        hooks = [layer.register_forward_pre_hook(self._record) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _record(self, layer: Any, args: tuple[Any, ...]) -> None:
        if args:
            _, layers = self._layers.setdefault(id(args[0]), (args[0], []))
            layers.append(layer)

    def make_adjacent(self) -> int:
        """Make the weights of layers with one input adjacent in memory; return how many groups are adjacent now."""
        groups: dict[tuple[Any, ...], dict[Any, None]] = {}
        for x, (_, layers) in self._layers.items():
            for layer in layers:
                weight, bias = layer.weight, layer.bias
                kind = (weight.shape[1], weight.dtype, weight.device, bias is None)
                groups.setdefault((x, *kind), {})[layer] = None
        self._layers.clear()
        different = dict.fromkeys(tuple(group) for group in groups.values() if len(group) > 1)
        return sum(map(_make_group_adjacent, different))


def _is_module(model: Any) -> bool:
    return isinstance(model, torch.nn.Module)


def _make_group_adjacent(layers: Sequence[Any]) -> bool:
    if not make_adjacent([layer.weight for layer in layers]):
        return False
    return layers[0].bias is None or make_adjacent([layer.bias for layer in layers])


def merge_projections(graph: Graph) -> None:
    """Replace linear layers of one input with adjacent weights by one layer and slices of its result."""
    groups: dict[tuple[Any, ...], dict[Node, Node]] = {}
    for node in graph.nodes:
        layer = linear_layer(node)
        # With gradients, the product would be saved for the backward pass as a whole.
        if layer is not None and not layer.is_transposed and not value(node).requires_grad:
            groups.setdefault((layer.x, layer.bias is None), {})[layer.weight] = node  # one node for each weight
    for group in groups.values():
        layers: list[Node] = []
        for node in group.values():
            if not accepts(node, _as_slice(value(node))):
                continue
            if layers and not _can_be_merged([*layers, node]):
                _merge(graph, layers)
                layers = []
            layers.append(node)
        _merge(graph, layers)


def _as_slice(result: Any) -> Any:
    """Return the result of a layer as a part of a wider one."""
    return result.new_empty((*result.shape[:-1], 2 * result.shape[-1]))[..., : result.shape[-1]]


def _can_be_merged(nodes: Sequence[Node]) -> bool:
    layers = [layer for node in nodes if (layer := linear_layer(node)) is not None]
    weights, biases = [value(x.weight) for x in layers], [value(x.bias) for x in layers]
    adjacent = are_adjacent(weights) and (biases[0] is None or are_adjacent(biases))
    return adjacent and nothing_written(nodes[0], nodes[-1])


def _merge(graph: Graph, nodes: Sequence[Node]) -> None:
    if len(nodes) < 2:  # noqa: PLR2004 - two layers
        return
    x, weights, biases, _ = zip(*filter(None, map(linear_layer, nodes)), strict=True)
    with graph.inserting_before(nodes[0]):
        weight = add_call(graph, torch.cat, weights)
        bias = None if biases[0] is None else add_call(graph, torch.cat, biases)
        merged = add_call(graph, torch.nn.functional.linear, x[0], weight, bias)
        begin = 0
        for node in nodes:
            end = begin + value(node).shape[-1]
            node.replace_all_uses_with(add_call(graph, getitem, merged, (..., slice(begin, end))))
            begin = end
    erase_unused(nodes)


def join_weights(graph: Graph) -> None:
    """Replace copies of several weights into one, which only matrix products read, by a view of the memory if they are adjacent."""
    for node in graph.find_nodes(op="call_function", target=_aten.cat.default):
        parts, *dim = node.args
        if dim not in ([], [0]) or not all(map(_is_constant, parts)) or not _is_only_multiplied(node):
            continue
        with graph.inserting_before(node):
            joined = graph.call_function(JOINED_WEIGHTS, (list(parts),))
        joined.meta.update(node.meta)
        node.replace_all_uses_with(joined)
        graph.erase_node(node)


def _is_constant(part: Node) -> bool:
    return part.op == "placeholder" and not any(user.target is _aten.copy_.default for user in part.users)


def _is_only_multiplied(node: Node) -> bool:
    """Return whether matrix products read a tensor, and nothing else: it must not be written to or returned."""
    return all(
        user.target in _PRODUCTS or (user.target in _TRANSPOSES and _is_only_multiplied(user)) for user in node.users
    )
