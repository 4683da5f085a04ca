"""Linear layers of one input (Q, K and V; gate and up) become one matrix product, `rocsolid.ops.merged_linear`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from rocsolid.ops.merged_linear import MERGED_LINEAR, make_adjacent

_aten: Final = torch.ops.aten
_VIEWS: Final = (_aten.view.default, _aten.reshape.default)
_OTHER_VIEWS: Final = (
    _aten.permute.default,
    _aten.transpose.int,
    _aten.t.default,
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
        groups = [_unique(layers) for _, layers in self._layers.values()]
        self._layers.clear()
        return sum(_make_group_adjacent(group) for group in dict.fromkeys(groups) if len(group) > 1)


def _is_module(model: Any) -> bool:
    return isinstance(model, torch.nn.Module)


def _unique(layers: Iterable[Any]) -> tuple[Any, ...]:
    return tuple({id(layer): layer for layer in layers}.values())


def _make_group_adjacent(layers: Sequence[Any]) -> bool:
    first = layers[0].weight
    same_kind = all(
        layer.weight.shape[1] == first.shape[1]
        and (layer.weight.dtype, layer.weight.device) == (first.dtype, first.device)
        and (layer.bias is None) == (layers[0].bias is None)
        for layer in layers
    )
    if not same_kind or not make_adjacent([layer.weight for layer in layers]):
        return False
    return layers[0].bias is None or make_adjacent([layer.bias for layer in layers])


def merge_projections(graph: Graph) -> None:
    """Replace matrix products of one matrix with several weights by one product and slices of its result."""
    groups: dict[tuple[Any, ...], list[Node]] = {}
    for node in graph.nodes:
        if (product := _Product.of(node)) is not None:
            groups.setdefault(product.key, []).append(node)
    for nodes in groups.values():
        different = {_Product.read(node).weight: node for node in nodes if _can_be_slice(node)}
        if len(different) > 1:
            _merge(graph, list(different.values()))
    graph.eliminate_dead_code()


class _Product:
    """A product of a matrix with the transposed weight of a linear layer."""

    def __init__(self, x: Node, weight: Node, bias: Node | None) -> None:
        self.x, self.weight, self.bias = x, weight, bias

    @classmethod
    def of(cls, node: Node) -> "_Product | None":
        if node.op != "call_function" or node.kwargs or node.target not in (_aten.mm.default, _aten.addmm.default):
            return None
        product = cls.read(node)
        is_weight = product.weight is not None and product.weight.op == "placeholder"
        has_bias = product.bias is None or (
            product.bias.op == "placeholder" and product.bias.meta["val"].shape == product.weight.meta["val"].shape[:1]
        )
        return product if is_weight and has_bias else None

    @classmethod
    def read(cls, node: Node) -> "_Product":
        bias, x, transposed = node.args if node.target is _aten.addmm.default else (None, *node.args)
        return cls(x, _transposed(transposed), bias)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for products that can be merged: the same matrix, which may be viewed several times, and the same kind of layer."""
        source, shape = (self.x, None) if self.x.target not in _VIEWS else (self.x.args[0], self.x.meta["val"].shape)
        value = self.weight.meta["val"]
        # As text: a size that changes from call to call cannot be hashed.
        return source, str(shape), value.dtype, value.device, str(value.shape[1]), self.bias is None


def _transposed(node: Any) -> Any:
    """Return what a node is the transposed matrix of; None for other nodes."""
    is_permuted = node.target is _aten.permute.default and list(node.args[1]) == [1, 0]
    return node.args[0] if is_permuted or node.target is _aten.t.default else None


def _can_be_slice(node: Node) -> bool:
    """Return whether a product can be a slice of a wider matrix: its views need no other strides, and it is not returned."""
    value = node.meta["val"]
    wider = value.new_empty((value.shape[0], value.shape[1] * 2))[:, : value.shape[1]]
    views = [node]
    for view in views:  # grows
        if any(user.op == "output" for user in view.users):
            return False
        views += [user for user in view.users if user.target in (*_VIEWS, *_OTHER_VIEWS)]
    try:
        for user in node.users:
            if user.target is _aten.view.default:
                wider.view(user.meta["val"].shape)
    except RuntimeError:
        return False
    return True


def _merge(graph: Graph, nodes: Sequence[Node]) -> None:
    products = [_Product.read(node) for node in nodes]
    weights = [product.weight for product in products]
    biases = [product.bias for product in products if product.bias is not None]
    with graph.inserting_before(nodes[0]):
        merged = graph.call_function(MERGED_LINEAR, (products[0].x, weights, biases))
        widths = [weight.meta["val"].shape[0] for weight in weights]
        merged.meta["val"] = products[0].x.meta["val"].new_empty((nodes[0].meta["val"].shape[0], sum(widths)))
        begin = 0
        for node, width in zip(nodes, widths, strict=True):
            part = graph.call_function(_aten.slice.Tensor, (merged, 1, begin, begin + width))
            part.meta["val"] = merged.meta["val"][:, begin : begin + width]
            node.replace_all_uses_with(part)
            begin += width
