"""Compiled code with the numerics of eager, as far as Inductor's kernels can have them.

Inductor rounds each result to its dtype as eager does and divides with correct rounding. What it would compute in another order or with
another formula is changed back: sums and the angles of rotary embeddings are left to ATen, SiLU gets ATen's formula. Who uses these
options compares the results with eager: a matrix product or an attention kernel may still be another one.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Graph, Node

from rocsolid.model.release import compare
from rocsolid.torchapi.config.modes import accepted_options
from rocsolid.torchapi.inductor.graph_pass import graph_pass, passes_supported

_aten: Final = torch.ops.aten
_SETTINGS: Final = (
    "emulate_precision_casts",
    "eager_numerics.division_rounding",
    "eager_numerics.use_pytorch_libdevice",
)


def exact_options(device_type: str = "cpu") -> dict[str, Any]:
    """Return the options of `torch.compile` for the numerics of eager; empty if this torch lacks what they need on the device."""
    # TypeError: CppVecOverrides.to_dtype() got an unexpected keyword argument 'use_compute_types'
    if device_type == "cpu" and compare(torch.__version__, "2.11") < 0:
        return {}
    options: dict[str, Any] = dict.fromkeys(accepted_options({*_SETTINGS}), True)
    if _SETTINGS[0] not in options or not passes_supported():
        return {}
    return {**options, "post_grad_custom_pre_pass": graph_pass(use_eager_operators)}


def _mean(x: Tensor, dim: list[int], *, keepdim: bool) -> Tensor:
    return torch.mean(x, dim, keepdim)


def _sum(x: Tensor, dim: list[int], *, keepdim: bool) -> Tensor:
    return torch.sum(x, dim, keepdim)


def _cos(x: Tensor) -> Tensor:
    return torch.cos(x)


def _sin(x: Tensor) -> Tensor:
    return torch.sin(x)


def _operator(name: str, function: Any) -> Any:
    op = torch.library.custom_op(f"rocsolid::{name}", function, mutates_args=())
    op.register_fake(function)
    return getattr(torch.ops.rocsolid, name).default


_REDUCTIONS: Final = {
    _aten.mean.dim: _operator("aten_mean", _mean),
    _aten.sum.dim_IntList: _operator("aten_sum", _sum),
}
_ANGLES: Final = {_aten.cos.default: _operator("aten_cos", _cos), _aten.sin.default: _operator("aten_sin", _sin)}


def use_eager_operators(graph: Graph) -> None:
    """Replace what Inductor computes differently from eager by operators that it takes as they are, and SiLU by ATen's formula."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _ANGLES:
            _replace(graph, node, _ANGLES[node.target], node.args, {})
        elif node.target in _REDUCTIONS and _is_plain_reduction(node):
            x, dims, keepdim = (*node.args, False)[:3]
            _replace(graph, node, _REDUCTIONS[node.target], (x, list(dims)), {"keepdim": keepdim})
        elif (x := _silu_of(node)) is not None:
            _write_silu(graph, node, x)
    graph.eliminate_dead_code()


def _is_plain_reduction(node: Node) -> bool:
    source = node.args[0].meta["val"]
    return bool(node.args[1]) and source.is_floating_point() and source.dtype == node.meta["val"].dtype


def _replace(graph: Graph, node: Node, target: Any, args: Any, kwargs: Any) -> None:
    with graph.inserting_before(node):
        new = graph.call_function(target, args, kwargs)
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)


def _silu_of(node: Node) -> Any:
    """Return x of `x * sigmoid(x)`, which torch before 2.13 makes of SiLU; ATen computes `x / (1 + exp(-x))`."""
    if node.target is not _aten.mul.Tensor or not all(isinstance(arg, Node) for arg in node.args):
        return None
    for x, other in (node.args, node.args[::-1]):
        if other.target is _aten.sigmoid.default and other.args[0] is x:
            return x
    return None


def _write_silu(graph: Graph, node: Node, x: Node) -> None:
    made = x
    with graph.inserting_before(node):
        for target, args in (
            (_aten.neg.default, ()),
            (_aten.exp.default, ()),
            (_aten.add.Tensor, (1,)),
        ):
            made = graph.call_function(target, (made, *args))
            made.meta["val"] = x.meta["val"]
        made = graph.call_function(_aten.div.Tensor, (x, made))
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
