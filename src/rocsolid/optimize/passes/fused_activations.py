"""Linear layers with few rows compute the activation of their result, too: `rocsolid.ops.linear_act`.

An activation is recognised by what it computes, because models write the same one in different ways.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import getitem
from typing import Any, Final, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.nn.functional import gelu, silu

from rocsolid.ops.joined_weights import are_adjacent
from rocsolid.ops.linear_act import LINEAR_ACT, suits
from rocsolid.optimize.passes.graph_edits import (
    Layer,
    add_call,
    erase_unused,
    linear_layer,
    name_of,
    nothing_written,
    run,
    value,
)

_ACTIVATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "silu": silu,
}
_ELEMENTWISE: Final = frozenset(
    {"add", "div", "erf", "exp", "gelu", "mul", "neg", "pow", "reciprocal", "sigmoid", "silu", "square", "sub", "tanh", "truediv"}
)  # fmt: skip
_VIEWS: Final = ("view", "reshape")
_MAX_STEPS: Final = 24  # an activation is among so many nodes after its layer
_ROUNDED: Final = 1e-5  # by this, for the digits of the constants; two activations differ by more than 1e-4


class _Activated(NamedTuple):
    """A layer, the result of its activation, and what that is multiplied with, if this comes from the same layer."""

    node: Node
    layer: Layer
    result: Node
    activation: str
    up: Node | None


def fuse_activations(graph: Graph) -> None:
    """Replace linear layers, the activation of their results, and the product with a second layer, by one operator."""
    for node in list(graph.nodes):
        layer = linear_layer(node)
        found = _activated(node, layer) if layer is not None and not value(node).requires_grad else None
        if found is not None:
            _fuse_gate(graph, found) or (
                found.up is None and _fuse(graph, [found.layer], found.result, found.activation, found.node)
            )


def _activated(node: Node, layer: Layer) -> _Activated | None:
    start, up = _after_views(node), None
    if len(start.users) == 1 and name_of(halves := next(iter(start.users))) in ("chunk", "split"):
        parts = {user.args[1]: user for user in halves.users if user.target is getitem}
        widths = [value(part).shape[-1] for part in parts.values()]
        if parts.keys() != {0, 1} or widths != [value(start).shape[-1] // 2] * 2 or len(halves.users) > 2:  # noqa: PLR2004
            return None
        start, up = parts[0], parts[1]
    found = _activation(start)
    return _Activated(node, layer, *found, up) if found else None


def _after_views(node: Node) -> Node:
    """Return the last of the views after a node that only change its rows."""
    while len(node.users) == 1:
        user = next(iter(node.users))
        if name_of(user) not in _VIEWS or value(user).shape[-1:] != value(node).shape[-1:]:
            break
        node = user
    return node


def _activation(start: Node) -> tuple[Node, str] | None:
    """Return the only result that is computed from a node by elementwise functions, and which activation it is."""
    computed, node = {start: None}, start
    for _ in range(_MAX_STEPS):
        node = node.next
        inputs = node.all_input_nodes
        if name_of(node) not in _ELEMENTWISE or not inputs or not computed.keys() >= set(inputs):
            continue
        if (value(node).shape, value(node).dtype) != (value(start).shape, value(start).dtype):
            continue
        computed[node] = None
        is_only_result = all(user in computed for x in computed if x is not node for user in x.users)
        if is_only_result and (name := _name_of_activation(list(computed))):
            return node, name
    return None


def _name_of_activation(nodes: list[Node]) -> str:
    points = torch.linspace(-8.0, 8.0, 257, dtype=torch.float64)
    values = {nodes[0]: points.clone()}
    for node in nodes[1:]:
        values[node] = run(node, lambda x: values[x] if isinstance(x, Node) else x)
    errors = {
        name: float((values[nodes[-1]] - function(points)).abs().max()) for name, function in _ACTIVATIONS.items()
    }
    return next((name for name, error in errors.items() if error < _ROUNDED), "")


def _fuse_gate(graph: Graph, gate: _Activated) -> bool:
    """Fuse the product of an activation with the result of a layer that has the same input."""
    product = next(iter(gate.result.users)) if len(gate.result.users) == 1 else None
    if product is None or name_of(product) != "mul" or not all(isinstance(arg, Node) for arg in product.args):
        return False
    other: Any = next((arg for arg in product.args if arg is not gate.result), None)
    if other is None or value(other).shape != value(product).shape or len(other.users) != 1:
        return False
    activation = f"{gate.activation}_mul"
    if gate.up is not None:
        return other is gate.up and _fuse(graph, [gate.layer], product, activation, gate.node)
    while name_of(other) in _VIEWS and len(other.args[0].users) == 1:
        other = other.args[0]
    up = linear_layer(other)
    if up is None or up.x is not gate.layer.x or up.is_transposed or gate.layer.is_transposed:
        return False
    biases = (gate.layer.bias, up.bias)
    are_alike = (biases[0] is None) == (biases[1] is None)
    if (
        not are_alike
        or not are_adjacent([value(gate.layer.weight), value(up.weight)])
        or not nothing_written(gate.node, other)
    ):
        return False
    if biases[0] is not None and not are_adjacent([value(bias) for bias in biases]):
        return False
    later = next(node for node in reversed(graph.nodes) if node in (gate.node, other))
    return _fuse(graph, [gate.layer, up], product, activation, later)


def _fuse(graph: Graph, layers: list[Layer], result: Node, activation: str, place: Node) -> bool:
    x, bias = layers[0].x, layers[0].bias
    weights = [layer.weight for layer in layers]
    rows = value(x).reshape(-1, value(x).shape[-1])
    weight = torch.cat([value(w) for w in weights]) if len(weights) > 1 else value(weights[0])
    if not all(isinstance(size, int) for size in value(result).shape):
        return False
    if not suits(rows, weight.t() if layers[0].is_transposed else weight, activation):
        return False
    with graph.inserting_before(place):
        joined = add_call(graph, torch.cat, weights) if len(weights) > 1 else weights[0]
        joined = add_call(graph, "t", joined) if layers[0].is_transposed else joined
        if len(layers) > 1 and bias is not None:
            bias = add_call(graph, torch.cat, [layer.bias for layer in layers])
        flat = add_call(graph, "reshape", x, *rows.shape) if value(x).dim() != rows.dim() else x
        fused = add_call(graph, LINEAR_ACT, flat, joined, bias, activation)
        fused = add_call(graph, "reshape", fused, *value(result).shape)
    result.replace_all_uses_with(fused)
    erase_unused([result])
    return True
