"""`nn.MultiheadAttention` without a copy: Q, K and V, which one product computes next to each other, are read where they are.

torch copies them to three matrices before it calls `scaled_dot_product_attention`, which accepts them where they are. Written out, that
call is also one that another pass can replace.
"""

import inspect
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.nn.functional import linear, multi_head_attention_forward, scaled_dot_product_attention

from rocsolid.optimize.passes.graph_edits import accepts, add_call, erase_unused, value

_SIGNATURE: Final = inspect.signature(multi_head_attention_forward)
_ALLOWED: Final = {
    "bias_k": None, "bias_v": None, "add_zero_attn": False, "key_padding_mask": None, "need_weights": False, "attn_mask": None,
    "is_causal": False, "use_separate_proj_weight": False, "static_k": None, "static_v": None,
}  # fmt: skip
_DIMENSIONS: Final = 3  # tokens, batch, width


def write_out_attention(graph: Graph) -> None:
    """Replace the self-attention of `nn.MultiheadAttention` by its products and one call of `scaled_dot_product_attention`."""
    for node in graph.find_nodes(op="call_function", target=multi_head_attention_forward):
        bound = _SIGNATURE.bind(*node.args, **node.kwargs)
        bound.apply_defaults()
        call = bound.arguments
        x = value(call["query"])
        if (
            call["query"] is call["key"] is call["value"]
            and all(call[name] is allowed for name, allowed in _ALLOWED.items())
            and not (call["training"] and call["dropout_p"])
            and isinstance(x, torch.Tensor)
            and x.dim() == _DIMENSIONS
            and all(isinstance(size, int) for size in x.shape)
            and all(isinstance(user.target, type(getitem)) and user.args[1] == 0 for user in node.users)
        ):
            _replace(graph, node, call)


def _replace(graph: Graph, node: Node, call: dict[str, Any]) -> None:
    heads, (tokens, batch, width) = call["num_heads"], value(call["query"]).shape
    with graph.inserting_before(node):
        # The module turns tensors of [batch, tokens, width] round: as they were, their products need no copy.
        turned = not value(call["query"]).is_contiguous()
        x = add_call(graph, "transpose", call["query"], 0, 1) if turned else call["query"]
        packed = add_call(graph, linear, x, call["in_proj_weight"], call["in_proj_bias"])
        first, second = (batch, tokens) if turned else (tokens, batch)
        parts = add_call(graph, "view", packed, first, second, 3, heads, width // heads)
        parts = add_call(graph, "permute", parts, *((2, 0, 3, 1, 4) if turned else (2, 1, 3, 0, 4)))
        query, key, value_ = (add_call(graph, getitem, parts, index) for index in range(3))
        seen = add_call(graph, scaled_dot_product_attention, query, key, value_)
        seen = add_call(graph, "permute", seen, *((0, 2, 1, 3) if turned else (2, 0, 1, 3)))
        seen = add_call(graph, "reshape", seen, first, second, width)
        result = add_call(graph, linear, seen, call["out_proj_weight"], call["out_proj_bias"])
        result = add_call(graph, "transpose", result, 0, 1) if turned else result
    for user in list(node.users):
        if accepts(user, value(result)):
            user.replace_all_uses_with(result)
        else:
            with graph.inserting_before(user):
                user.replace_all_uses_with(add_call(graph, "contiguous", result))
    erase_unused([*node.users, node])
