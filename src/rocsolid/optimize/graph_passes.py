"""The graph passes that `rs.optimize` tries with the fastest compiled form, and for which models it tries them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.fx import Graph
from torch.overrides import TorchFunctionMode

from rocsolid.model.setting import Value
from rocsolid.ops.linear_act import suits as suits_fusing
from rocsolid.optimize.attention import ATTENTION
from rocsolid.optimize.passes.autotuned_products import benchmark_products
from rocsolid.optimize.passes.fused_activations import fuse_activations
from rocsolid.optimize.passes.library_products import LIBRARIES
from rocsolid.optimize.passes.merge_projections import SharedInputs, join_weights, merge_projections
from rocsolid.optimize.passes.own_attention import suits_own_attention, use_own_attention
from rocsolid.optimize.passes.packed_attention import write_out_attention
from rocsolid.optimize.passes.patch_products import is_patch_product, write_out_patches
from rocsolid.optimize.passes.split_products import has_few_rows, split_products
from rocsolid.torchapi.graphs.device_graphs import has_other_graphs
from rocsolid.torchapi.inductor.graph_pass import graph_pass

PACKED_ATTENTION: Final = "rocsolid.packed_attention"
PATCH_PRODUCTS: Final = "rocsolid.patch_products"
OWN_ATTENTION: Final = "rocsolid.attention"
FUSED_ACTIVATIONS: Final = "rocsolid.fused_activations"
MERGED_PROJECTIONS: Final = "rocsolid.merged_projections"
SPLIT_PRODUCTS: Final = "rocsolid.split_products"
AUTOTUNED_PRODUCTS: Final = "rocsolid.autotuned_products"
LIBRARY: Final = "rocsolid.library"
Pass = Callable[[Graph], None]
# What each consists of, in the order in which they run: before and after autograd.
_BEFORE_AUTOGRAD: Final[Mapping[str, Pass]] = {
    PACKED_ATTENTION: write_out_attention,
    OWN_ATTENTION: use_own_attention,
    FUSED_ACTIVATIONS: fuse_activations,
    MERGED_PROJECTIONS: merge_projections,
}
_AFTER_AUTOGRAD: Final[Mapping[str, Pass]] = {
    FUSED_ACTIVATIONS: join_weights,
    MERGED_PROJECTIONS: join_weights,
    PATCH_PRODUCTS: write_out_patches,
    SPLIT_PRODUCTS: split_products,
    AUTOTUNED_PRODUCTS: benchmark_products,
}
_PASSES: Final = (*_BEFORE_AUTOGRAD, *_AFTER_AUTOGRAD, LIBRARY)


def is_pass(name: str) -> bool:
    """Return whether this is the id of a graph pass, and not of a setting."""
    return name in _PASSES


def pass_options(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the options of `torch.compile` that switch on the passes among these values; others are ignored."""
    before = [rewrite for name, rewrite in _BEFORE_AUTOGRAD.items() if name in values]
    after = [*dict.fromkeys(rewrite for name, rewrite in _AFTER_AUTOGRAD.items() if name in values)]
    if LIBRARY in values:
        after.append(LIBRARIES[str(values[LIBRARY])])
    options = {"pre_grad_custom_pass": before, "post_grad_custom_pre_pass": after}
    return {option: graph_pass(*functions) for option, functions in options.items() if functions}


@contextmanager
def finding_unsuitable(model: Any, ids: Collection[str]) -> Iterator[set[str]]:
    """Yield a set, which gets the ids of what cannot change the model that runs in eager inside the block.

    Prepares the weights for merging.
    """
    # A graph of the user would read the memory that the weights had before.
    moves_weights = not has_other_graphs() and not {MERGED_PROJECTIONS, FUSED_ACTIVATIONS}.isdisjoint(ids)
    shared_inputs = SharedInputs()
    calls = SuitableCalls(_NEED_CALLS & {*ids})
    unsuitable: set[str] = set()
    with shared_inputs.watch(model if moves_weights else None), calls:
        yield unsuitable
    unsuitable |= calls.wanted - calls.found
    if not shared_inputs.make_adjacent():
        unsuitable.add(MERGED_PROJECTIONS)


class SuitableCalls(TorchFunctionMode):  # type: ignore[misc]
    """Inside the block, notices which of the wanted passes and choices some call is suitable for."""

    def __init__(self, wanted: Iterable[str]) -> None:
        super().__init__()
        self.wanted = set(wanted)
        self.found: set[str] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if self.wanted - self.found:
            self.found |= self.wanted & set(_suitable(function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def _suitable(function: Any, args: Any, kwargs: Mapping[str, Any]) -> Iterator[str]:
    if function is torch.nn.functional.scaled_dot_product_attention:
        yield ATTENTION
        call = {
            **kwargs,
            **dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)),
        }
        is_masked = call.get("attn_mask") is not None or call.get(
            "is_causal"
        )  # compiled, a model may use a mask in place of it
        if _are_dense([*args, *kwargs.values()]) and (is_masked or suits_own_attention(args, kwargs)):
            yield OWN_ATTENTION
    elif getattr(function, "__name__", "") in _MODULE_ATTENTION:
        yield from (ATTENTION, PACKED_ATTENTION, OWN_ATTENTION)
    elif getattr(function, "__name__", "") in _ACTIVATIONS and args and _are_dense(args[:1]):
        x = args[0]
        if isinstance(x, torch.Tensor) and x.dim() > 1 and x.shape[-1] > 0:
            rows = x.reshape(-1, x.shape[-1])
            if suits_fusing(rows, rows, "gelu"):
                yield FUSED_ACTIVATIONS
    elif function in _PRODUCTS and not kwargs and _are_dense(args):
        a, b = args[:2] if function is torch.nn.functional.linear else args[-2:]
        if b.dim() == 2 and a.dim() > 0 and a.shape[-1] > 0:  # noqa: PLR2004 - a matrix
            yield LIBRARY
            few_rows = has_few_rows(a.reshape(-1, a.shape[-1]), b.t() if function is torch.nn.functional.linear else b)
            yield SPLIT_PRODUCTS if few_rows else AUTOTUNED_PRODUCTS
    elif function in _CONVOLUTIONS and _are_dense(args) and _is_patch_product(*args, **kwargs):
        yield from (PATCH_PRODUCTS, SPLIT_PRODUCTS)


def _is_patch_product(
    input: Any,  # noqa: A002 - as torch calls it
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    def each(given: Any) -> Any:
        return (given,) * (weight.dim() - 2) if isinstance(given, int) else given

    del bias
    return is_patch_product(input, weight, each(stride), each(padding), each(dilation), groups)


_NEED_CALLS: Final = frozenset(
    {
        ATTENTION, PACKED_ATTENTION, OWN_ATTENTION, FUSED_ACTIVATIONS, PATCH_PRODUCTS, SPLIT_PRODUCTS, AUTOTUNED_PRODUCTS, LIBRARY,
    }
)  # fmt: skip
_CONVOLUTIONS: Final = (torch.conv1d, torch.conv2d, torch.conv3d)
# What `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call, in eager.
_MODULE_ATTENTION: Final = (
    "multi_head_attention_forward",
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
)
_ACTIVATIONS: Final = ("gelu", "silu", "tanh", "sigmoid")
_PRODUCTS: Final = (
    torch.nn.functional.linear,
    torch.addmm,
    torch.mm,
    torch.matmul,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
)


def _are_dense(args: Iterable[Any]) -> bool:
    """Return whether all tensors are plain ones: neither nested or sparse, nor of a subclass that computes in its own way."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    return all(
        type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout is torch.strided for x in tensors
    ) and not any(x.is_nested for x in tensors)
