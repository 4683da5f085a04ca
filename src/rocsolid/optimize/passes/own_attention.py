"""Attention with a mask or with few queries runs in rocsolid's kernel, `rocsolid.ops.shipped.attention`.

For most masks torch has no fused kernel: it computes the scores with separate kernels, in float32. With few queries its kernels leave
most of the GPU idle, while ours splits the keys. Keys and values that were put together with `torch.cat` are read where they are.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.nn.functional import scaled_dot_product_attention

from rocsolid.ops.shipped.operators import ATTENTION, attention_supports

_FEW_QUERIES: Final = 128  # with more, flash attention fills the GPU
_DTYPES: Final = (torch.float16, torch.bfloat16)
_TOKENS: Final = 2  # the dimension of the tokens in [batch, heads, tokens, head_dim]


def _signature(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> None:
    """The signature of `scaled_dot_product_attention`, which is a built-in function without one."""


_SIGNATURE: Final = inspect.signature(_signature)


def suits_own_attention(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether our kernel computes this call of `scaled_dot_product_attention`, and may be faster than torch's."""
    call = _arguments(args, kwargs)
    if call is None:
        return False
    q, k, v, mask = call["query"], call["key"], call["value"], call["attn_mask"]
    tensors = [q, k, v]
    return bool(
        all(t.dim() == _TOKENS + 2 and t.dtype in _DTYPES for t in tensors)
        and attention_supports(q, k, v, mask)
        and call["dropout_p"] == 0.0
        and (mask is None or mask.dtype == torch.bool or mask.dtype.is_floating_point)
        and not any(t.requires_grad for t in (*tensors, *([] if mask is None else [mask])))
        and k.shape[:3] == v.shape[:3]
        and q.shape[0] == k.shape[0]
        and (q.shape[1] == k.shape[1] or (call["enable_gqa"] and q.shape[1] % k.shape[1] == 0))
        and (mask is not None or q.shape[_TOKENS] <= _FEW_QUERIES)
    )


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        bound = _SIGNATURE.bind(*args, **kwargs)
    except TypeError:  # a parameter that a later torch has added
        return None
    bound.apply_defaults()
    return bound.arguments


def use_own_attention(graph: Graph) -> None:
    """Replace calls of `scaled_dot_product_attention` that our kernel computes faster."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not scaled_dot_product_attention:
            continue
        call = _arguments(node.args, node.kwargs)
        if call is None or any(isinstance(x, Node) for x in (call["scale"], call["dropout_p"], call["is_causal"])):
            continue
        if not suits_own_attention(*torch.fx.node.map_arg((node.args, node.kwargs), _value)):
            continue
        key, value = call["key"], call["value"]
        more_key = more_value = None
        keys, values = _joined(key), _joined(value)
        if keys and values and _lengths(keys) == _lengths(values):
            (key, more_key), (value, more_value) = keys, values
        rest = (call["scale"], call["is_causal"], call["attn_mask"], more_key, more_value)
        with graph.inserting_before(node):
            ours = graph.call_function(ATTENTION, (call["query"], key, value, *rest))
            ours.meta = dict(node.meta)
        node.replace_all_uses_with(ours)
        graph.erase_node(node)
    graph.eliminate_dead_code()


def _value(node: Node) -> Any:
    return node.meta["example_value"]


def _joined(node: Node) -> tuple[Node, Node] | None:
    """Return the two tensors that `torch.cat` has joined along the tokens, and that nothing else needs joined; otherwise None."""
    if node.op != "call_function" or node.target is not torch.cat or len(node.users) > 1:
        return None
    tensors = node.args[0] if node.args else node.kwargs.get("tensors", ())
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if dim not in (_TOKENS, -2) or len(tensors) != 2:  # noqa: PLR2004 - the kernel reads two
        return None
    first, second = tensors
    same = (
        _value(first).shape[:_TOKENS] == _value(second).shape[:_TOKENS] and _value(first).dtype == _value(second).dtype
    )
    return (first, second) if same and min(_lengths((first, second))) > 0 else None


def _lengths(tensors: tuple[Node, Node]) -> tuple[int, int]:
    first, second = tensors
    return _value(first).shape[_TOKENS], _value(second).shape[_TOKENS]
