"""Attention with a mask or with few queries runs in rocsolid's kernel, `rocsolid.ops.shipped.attention`.

For most masks torch has no fused kernel: it computes the scores with separate kernels, in float32. With few queries its kernels leave
most of the GPU idle, while ours splits the keys. Keys and values that were put together with `torch.cat`, or repeated for several heads
of queries, are read where they are.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.nn.functional import scaled_dot_product_attention

from rocsolid.ops.shipped.device import gpu
from rocsolid.ops.shipped.operators import ATTENTION, attention_supports
from rocsolid.optimize.passes.graph_edits import constant, erase_unused, name_of, nothing_written, value

_FLASH_BLOCK: Final = 128
_MAX_MASK: Final = 1 << 24  # elements of a mask that are compared
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
    return call is not None and _suits(call)


def _suits(call: Mapping[str, Any]) -> bool:
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
        and (mask is not None or not _flash_fills_gpu(q))
    )


def _flash_fills_gpu(q: Any) -> bool:
    """Return whether flash attention, which computes blocks of 128 queries, has work for each multiprocessor."""
    return bool(q.shape[0] * q.shape[1] * -(-q.shape[_TOKENS] // _FLASH_BLOCK) >= gpu(q.device).compute_units)


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        bound = _SIGNATURE.bind(*args, **kwargs)
    except TypeError:  # a parameter that a later torch has added
        return None
    bound.apply_defaults()
    return bound.arguments


def use_own_attention(graph: Graph) -> None:
    """Replace calls of `scaled_dot_product_attention` that our kernel computes faster; causal masks become `is_causal` in the others."""
    kinds: dict[Node, str] = {}
    for node in graph.find_nodes(op="call_function", target=scaled_dot_product_attention):
        call = _arguments(node.args, node.kwargs)
        if call is None or any(isinstance(call[name], Node) for name in ("scale", "dropout_p", "is_causal")):
            continue
        mask = call["attn_mask"]
        if isinstance(mask, Node) and not call["is_causal"]:
            kind = kinds[mask] if mask in kinds else kinds.setdefault(mask, _kind_of_mask(mask))
            if kind:
                call |= {"attn_mask": None, "is_causal": kind == "causal"}
        replacement = _own_attention(graph, node, call) or _without_mask(graph, node, call)
        if replacement is not None:
            replacement.meta.update(node.meta)
            node.replace_all_uses_with(replacement)
            erase_unused([node])


def _own_attention(graph: Graph, node: Node, call: dict[str, Any]) -> Node | None:
    key, value_ = _before_repetition(call["key"], node), _before_repetition(call["value"], node)
    if key is not None and value_ is not None and value(key).shape[1] == value(value_).shape[1]:
        call = {**call, "key": key, "value": value_, "enable_gqa": True}
    if not _suits({name: value(given) for name, given in call.items()}):
        return None
    key, value_ = call["key"], call["value"]
    more_key = more_value = None
    keys, values = _joined(key, node), _joined(value_, node)
    if keys and values and _lengths(keys) == _lengths(values):
        (key, more_key), (value_, more_value) = keys, values
    rest = (call["scale"], call["is_causal"], call["attn_mask"], more_key, more_value)
    with graph.inserting_before(node):
        return graph.call_function(ATTENTION, (call["query"], key, value_, *rest))


def _without_mask(graph: Graph, node: Node, call: dict[str, Any]) -> Node | None:
    """Return the same call without its mask, if it was found that it needs none: then torch has faster kernels."""
    if call["attn_mask"] is not None or _arguments(node.args, node.kwargs) == call:
        return None
    with graph.inserting_before(node):
        return graph.call_function(scaled_dot_product_attention, kwargs=call)


def _kind_of_mask(mask: Node) -> str:
    """Return "causal" for a mask that hides the keys after each query, "nothing" for one that hides none, and "" for any other mask.

    Models build these from numbers alone, so that their elements are known here. The smallest number of a dtype hides a key, too.
    """
    given = value(mask)
    is_mask = given is not None and given.dim() >= _TOKENS and all(isinstance(size, int) for size in given.shape)
    elements = constant(mask) if is_mask and given.numel() <= _MAX_MASK else None
    if elements is None:
        return ""
    if elements.dtype == torch.bool:
        visible, hidden = elements, ~elements
    else:
        visible, hidden = elements == 0, elements <= torch.finfo(elements.dtype).min
    if visible.all():
        return "nothing"
    causal = torch.ones(visible.shape, dtype=torch.bool).tril()
    is_causal = visible.shape[-1] == visible.shape[-2] and bool((visible == causal).all() and (hidden == ~causal).all())
    return "causal" if is_causal else ""


def _before_repetition(node: Node, attention: Node) -> Node | None:
    """Return keys or values with fewer heads, if each head was repeated for several heads of queries; otherwise None."""
    given = value(node)
    expanded = node.args[0] if name_of(node) in ("reshape", "flatten", "view") else None
    added = expanded.args[0] if isinstance(expanded, Node) and name_of(expanded) == "expand" else None
    if not isinstance(added, Node) or name_of(added) not in ("getitem", "unsqueeze") or given.dim() != _TOKENS + 2:
        return None
    source, index = added.args
    indices = index if isinstance(index, tuple) else (index,)
    is_view = all(i is None or i is Ellipsis or isinstance(i, int | slice) for i in indices)
    if not is_view or value(source).dim() != _TOKENS + 2:
        return None
    batch, heads, *rest = value(source).shape
    shapes = [tuple(value(x).shape) for x in (added, expanded, node)]
    times = given.shape[1] // heads
    expected = [(batch, heads, 1, *rest), (batch, heads, times, *rest), (batch, heads * times, *rest)]
    return source if shapes == expected and nothing_written(added, attention) else None


def _joined(node: Node, attention: Node) -> tuple[Node, Node] | None:
    """Return the two tensors that `torch.cat` has joined along the tokens, and that nothing else needs joined; otherwise None."""
    if node.op != "call_function" or node.target is not torch.cat or len(node.users) > 1:
        return None
    tensors = node.args[0] if node.args else node.kwargs.get("tensors", ())
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if dim not in (_TOKENS, -2) or len(tensors) != 2:  # noqa: PLR2004 - the kernel reads two
        return None
    first, second = tensors
    same = value(first).shape[:_TOKENS] == value(second).shape[:_TOKENS] and value(first).dtype == value(second).dtype
    if not same or min(_lengths((first, second))) == 0 or not nothing_written(node, attention):
        return None
    return first, second


def _lengths(tensors: tuple[Node, Node]) -> tuple[int, int]:
    first, second = tensors
    return value(first).shape[_TOKENS], value(second).shape[_TOKENS]
