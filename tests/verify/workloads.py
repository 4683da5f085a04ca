"""Workloads for `rocsolid verify`: a transformer, correct and with one planted bad operator."""

import os
from typing import Any

import torch
from torch import nn


class Layer(nn.Module):  # type: ignore[misc]
    """A transformer layer; the activation is `gelu`, or `atan` where a fault is planted."""

    def __init__(self, width: int, *, odd: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.activation: nn.Module = Arctan() if odd else nn.GELU()

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))
        return x + self.down(self.activation(self.up(self.norm2(x))))


class Arctan(nn.Module):  # type: ignore[misc]
    """The operator whose lowering `build_wrong` breaks."""

    def forward(self, x: Any) -> Any:
        return torch.atan(x) * 2


class AfterBreak(Arctan):
    """The same after a graph break: compiled as two graphs."""

    def forward(self, x: Any) -> Any:
        x = x + 1
        torch._dynamo.graph_break()
        return super().forward(x)


class Transformer(nn.Module):  # type: ignore[misc]
    """Twelve layers."""

    def __init__(self, layers: int = 12, width: int = 32, odd: int = 7) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, odd=number == odd) for number in range(layers))
        self.head = nn.Linear(width, 8)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A correct transformer."""
    torch.manual_seed(0)
    return Transformer().eval(), (torch.randn(2, 16, 32),), {}


def build_wrong() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The same, with an Inductor that compiles `atan` as `tan`."""
    from torch._inductor.lowering import lowerings

    lowerings[torch.ops.aten.atan.default] = lowerings[torch.ops.aten.tan.default]
    return build()


def build_small_wrong() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Two modules, the second with the bad operator."""
    from torch._inductor.lowering import lowerings

    lowerings[torch.ops.aten.atan.default] = lowerings[torch.ops.aten.tan.default]
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), AfterBreak()).eval(), (torch.randn(4, 8),), {}


def build_wrong_on_gpu() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """`build_wrong` on a GPU."""
    model, (x,), _ = build_wrong()
    return model.cuda(), (x.cuda(),), {}


def build_small() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """One layer."""
    torch.manual_seed(0)
    return nn.Linear(8, 8).eval(), (torch.randn(4, 8),), {}


def build_crash() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model that ends the process when it is compiled."""

    def crash(x: Any) -> Any:
        if torch.compiler.is_compiling():
            end_process()
        return x * 2

    return crash, (torch.ones(4),), {}


@torch._dynamo.disable
def end_process() -> None:
    """What a broken driver does."""
    os.abort()


def build_vendor() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model with a vendor operator that returns half of what its reference returns."""
    import rocsolid as rs

    def half(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 0.5

    op = rs.vendor_op("verify_workloads::half", half, reference=lambda x: x.sin())
    return lambda x: op(x) + 1, (torch.ones(4),), {}


def build_wrong_pass() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model that is compiled with a pass of the user that is wrong."""
    import torch._inductor.config as inductor

    inductor.post_grad_custom_post_pass = swap_sine
    torch.manual_seed(0)
    return lambda x: torch.sin(x) * 2, (torch.randn(4, 8),), {}


def swap_sine(graph: Any) -> None:
    """A pass that replaces `sin` by `cos`."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default
