"""`nn.MultiheadAttention` and `nn.TransformerEncoderLayer` written out, without a copy of Q, K and V.

One product computes Q, K and V next to each other. torch copies them to three matrices before it calls `scaled_dot_product_attention`,
which accepts them where they are; or the whole layer is one operator, inside which Inductor can fuse nothing. Written out, its parts are
also those that other passes replace.
"""

import inspect
from operator import add, getitem
from typing import Any, Final, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.nn.functional import (
    gelu,
    layer_norm,
    linear,
    multi_head_attention_forward,
    relu,
    scaled_dot_product_attention,
)

from rocsolid.optimize.passes.graph_edits import accepts, add_call, erase_unused, name_of, value

_SIGNATURE: Final = inspect.signature(multi_head_attention_forward)
_ALLOWED: Final = {
    "bias_k": None, "bias_v": None, "add_zero_attn": False, "key_padding_mask": None, "need_weights": False, "attn_mask": None,
    "is_causal": False, "use_separate_proj_weight": False, "static_k": None, "static_v": None,
}  # fmt: skip
_DIMENSIONS: Final = 3  # batch, tokens, width; `multi_head_attention_forward` has the tokens first


class _Attention(NamedTuple):
    x: Any
    heads: Any
    in_weight: Any
    in_bias: Any
    out_weight: Any
    out_bias: Any


def write_out_attention(graph: Graph) -> None:
    """Replace self-attention without a mask, and encoder layers, by linear layers and calls of `scaled_dot_product_attention`."""
    for node in list(graph.nodes):
        if node.target is multi_head_attention_forward:
            _replace_function(graph, node)
        elif name_of(node) == "_native_multi_head_attention":
            _replace_operator(graph, node)
        elif name_of(node) == "_transformer_encoder_layer_fwd":
            _replace_layer(graph, node)


def _is_known(x: Any) -> bool:
    given = value(x)
    is_tensor = isinstance(x, Node) and isinstance(given, torch.Tensor) and given.dim() == _DIMENSIONS
    return is_tensor and not given.is_nested and all(isinstance(size, int) for size in given.shape)


def _only_first_result(node: Node) -> bool:
    return all(user.target is getitem and user.args[1] == 0 for user in node.users)


def _replace_function(graph: Graph, node: Node) -> None:
    bound = _SIGNATURE.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    call = bound.arguments
    x = call["query"]
    is_allowed = all(call[name] is allowed for name, allowed in _ALLOWED.items())
    if not (x is call["key"] is call["value"] and is_allowed and _is_known(x) and _only_first_result(node)):
        return
    if call["training"] and call["dropout_p"]:
        return
    weights = (call["in_proj_weight"], call["in_proj_bias"], call["out_proj_weight"], call["out_proj_bias"])
    with graph.inserting_before(node):
        if value(x).is_contiguous():
            result = _attend(graph, _Attention(x, call["num_heads"], *weights), tokens_first=True)
        else:  # the module has turned it round: without that, the product needs no copy
            turned = add_call(graph, "transpose", x, 0, 1)
            result = add_call(graph, "transpose", _attend(graph, _Attention(turned, call["num_heads"], *weights)), 0, 1)
    _use(graph, node, result)


def _replace_operator(graph: Graph, node: Node) -> None:
    x, key, value_, _, heads, *weights = node.args[:9]
    mask, need_weights = (*node.args[9:11], None, True)[:2] if len(node.args) < 11 else node.args[9:11]  # noqa: PLR2004
    if x is key is value_ and mask is None and need_weights is False and _is_known(x) and _only_first_result(node):
        with graph.inserting_before(node):
            result = _attend(graph, _Attention(x, heads, *weights))
        _use(graph, node, result)


def _use(graph: Graph, node: Node, result: Node) -> None:
    """Use a result in place of the first one of a node; as a copy where its strides do not suit."""
    for user in list(node.users):
        if accepts(user, value(result)):
            user.replace_all_uses_with(result)
        else:
            with graph.inserting_before(user):
                user.replace_all_uses_with(add_call(graph, "contiguous", result))
    erase_unused([*node.users, node])


def _replace_layer(graph: Graph, node: Node) -> None:
    if len(node.args) < 18 or node.kwargs or any(mask is not None for mask in node.args[18:]):  # noqa: PLR2004
        return
    x, _, heads, *weights, use_gelu, norm_first, eps = node.args[:10]
    norm_1, norm_2, up, down = (node.args[index : index + 2] for index in (10, 12, 14, 16))
    if not _is_known(x) or any(isinstance(option, Node) for option in (use_gelu, norm_first, eps)):
        return
    width = (value(x).shape[-1],)
    with graph.inserting_before(node):
        y = add_call(graph, layer_norm, x, width, *norm_1, eps) if norm_first else x
        y = add_call(graph, add, x, _attend(graph, _Attention(y, heads, *weights)))
        y = y if norm_first else add_call(graph, layer_norm, y, width, *norm_1, eps)
        inner = add_call(graph, layer_norm, y, width, *norm_2, eps) if norm_first else y
        inner = add_call(graph, gelu if use_gelu else relu, add_call(graph, linear, inner, *up))
        y = add_call(graph, add, y, add_call(graph, linear, inner, *down))
        y = y if norm_first else add_call(graph, layer_norm, y, width, *norm_2, eps)
    node.replace_all_uses_with(y)
    erase_unused([node])


def _attend(graph: Graph, call: _Attention, *, tokens_first: bool = False) -> Node:
    """Add self-attention over [batch, tokens, width] or [tokens, batch, width], and return its result."""
    first, second, width = value(call.x).shape
    packed = add_call(graph, linear, call.x, call.in_weight, call.in_bias)
    parts = add_call(graph, "view", packed, first, second, 3, call.heads, width // call.heads)
    parts = add_call(graph, "permute", parts, *((2, 1, 3, 0, 4) if tokens_first else (2, 0, 3, 1, 4)))
    query, key, value_ = (add_call(graph, getitem, parts, index) for index in range(3))
    seen = add_call(graph, scaled_dot_product_attention, query, key, value_)
    seen = add_call(graph, "permute", seen, *((2, 0, 1, 3) if tokens_first else (0, 2, 1, 3)))
    seen = add_call(graph, "reshape", seen, first, second, width)
    return add_call(graph, linear, seen, call.out_weight, call.out_bias)
