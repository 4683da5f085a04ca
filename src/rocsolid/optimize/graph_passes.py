"""The graph passes that `rs.optimize` tries with the fastest compiled form, and for which models it tries them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.fx import Graph
from torch.overrides import TorchFunctionMode

from rocsolid.model.plan import Decision
from rocsolid.model.setting import Channel
from rocsolid.optimize.attention import ATTENTION
from rocsolid.optimize.form_race import TriedSetting
from rocsolid.optimize.passes.fused_activations import fuse_activations
from rocsolid.optimize.passes.merge_projections import SharedInputs, join_weights, merge_projections
from rocsolid.optimize.passes.own_attention import suits_own_attention, use_own_attention
from rocsolid.optimize.passes.packed_attention import write_out_attention
from rocsolid.optimize.passes.split_products import split_products, suits_splitting
from rocsolid.torchapi.graphs.device_graphs import has_other_graphs
from rocsolid.torchapi.inductor.graph_pass import graph_pass, passes_supported

MERGED_PROJECTIONS: Final = "rocsolid.merged_projections"
PACKED_ATTENTION: Final = "rocsolid.packed_attention"
OWN_ATTENTION: Final = "rocsolid.attention"
FUSED_ACTIVATIONS: Final = "rocsolid.fused_activations"
SPLIT_PRODUCTS: Final = "rocsolid.split_products"
# What each consists of, in the order in which they run: before and after autograd.
_BEFORE_AUTOGRAD: Final[Mapping[str, Callable[[Graph], None]]] = {
    PACKED_ATTENTION: write_out_attention,
    OWN_ATTENTION: use_own_attention,
    FUSED_ACTIVATIONS: fuse_activations,
    MERGED_PROJECTIONS: merge_projections,
}
_AFTER_AUTOGRAD: Final[Mapping[str, Callable[[Graph], None]]] = {
    FUSED_ACTIVATIONS: join_weights,
    MERGED_PROJECTIONS: join_weights,
    SPLIT_PRODUCTS: split_products,
}
_PASSES: Final = tuple({**_BEFORE_AUTOGRAD, **_AFTER_AUTOGRAD})


def is_pass(name: str) -> bool:
    """Return whether this is the id of a graph pass, and not of a setting."""
    return name in _PASSES


def pass_options(names: Iterable[str]) -> dict[str, Any]:
    """Return the options of `torch.compile` that switch passes on; names of settings are ignored."""
    wanted = set(names)
    options = {"pre_grad_custom_pass": _BEFORE_AUTOGRAD, "post_grad_custom_pre_pass": _AFTER_AUTOGRAD}
    rewrites = {
        x: dict.fromkeys(rewrite for name, rewrite in of.items() if name in wanted) for x, of in options.items()
    }
    return {option: graph_pass(*functions) for option, functions in rewrites.items() if functions}


def tried_passes() -> Iterator[TriedSetting]:
    """Yield the passes as values that are tried with the fastest compiled form."""
    for name in _PASSES if passes_supported() else ():
        why = "rs.optimize tries it for inference on a GPU."
        yield TriedSetting(
            Decision(id=name, value=True, channel=Channel.OPTION, why=why, profile="optimize"), setup_factor=1.0
        )


@contextmanager
def leave_out_unsuitable(model: Any, tried: dict[str, Any]) -> Iterator[None]:
    """Remove from `tried` what cannot change the model, which runs in eager inside the block. Prepares the weights for merging."""
    if MERGED_PROJECTIONS in tried and has_other_graphs():  # they would read the memory that the weights had before
        del tried[MERGED_PROJECTIONS]
    shared_inputs = SharedInputs()
    calls = SuitableCalls({ATTENTION, OWN_ATTENTION, SPLIT_PRODUCTS} & tried.keys())
    with shared_inputs.watch(model if MERGED_PROJECTIONS in tried else None), calls:
        yield
    for name in calls.wanted - calls.found:
        del tried[name]
    if not shared_inputs.make_adjacent():
        tried.pop(MERGED_PROJECTIONS, None)


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
        if _are_dense([*args, *kwargs.values()]) and suits_own_attention(args, kwargs):
            yield OWN_ATTENTION
    elif function in _PRODUCTS and not kwargs and _are_dense(args):
        a, b = args[:2] if function is torch.nn.functional.linear else args[-2:]
        if b.dim() == 2 and a.dim() > 0 and a.shape[-1] > 0:  # noqa: PLR2004 - a matrix
            rows = a.reshape(-1, a.shape[-1])
            if suits_splitting(rows, b.t() if function is torch.nn.functional.linear else b):
                yield SPLIT_PRODUCTS


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
