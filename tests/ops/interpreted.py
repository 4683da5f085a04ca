"""Runs every kernel in Triton's interpreter on the CPU and compares it with its reference.

A separate program, because TRITON_INTERPRET must be set before Triton is imported. Unlike a GPU, the interpreter rounds bfloat16
towards zero, hence the wider tolerance.
"""

import itertools
from typing import Any

import torch

from rocsolid.ops.linear_act import reference as linear_act
from rocsolid.ops.shipped import launch, references
from rocsolid.ops.shipped.tiles import Tile


def check(name: str, result: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    error = (result.float() - expected.float()).abs().max().item()
    print(f"{name} {error:.2e}")  # noqa: T201 - read by the test
    assert error <= tolerance, (name, error)
    assert result.dtype == expected.dtype
    assert result.is_contiguous() or result.transpose(1, 2).is_contiguous()


def norms() -> None:
    for rows, columns, dtype in ((3, 64, torch.float32), (2, 100, torch.bfloat16), (1, 1024, torch.float32)):
        x, residual = torch.randn(rows, columns).to(dtype), torch.randn(rows, columns).to(dtype)
        weight = torch.randn(columns).to(dtype)
        tolerance = 1e-5 if dtype is torch.float32 else 4e-2
        check("rms_norm", launch.launch_rms_norm(x, weight, 1e-6), references.rms_norm(x, weight, 1e-6), tolerance)
        result = launch.launch_add_rms_norm(x, residual, weight, 1e-6)
        expected = references.add_rms_norm(x, residual, weight, 1e-6)
        check("add_rms_norm", result[0], expected[0], tolerance)
        check("add_rms_norm, the sum", result[1], expected[1], 0.0 if dtype is torch.float32 else 4e-2)
    wide = torch.randn(4, 5, 96)[..., ::3]  # not contiguous
    check(
        "rms_norm of a slice",
        launch.launch_rms_norm(wide, torch.ones(32), 1e-6),
        references.rms_norm(wide, torch.ones(32)),
        1e-5,
    )


def gates() -> None:
    both = torch.randn(3, 2 * 1100)
    gate, up = both.chunk(2, -1)
    check("silu_mul", launch.launch_gate_mul(gate, up, "silu"), references.silu_mul(gate, up).contiguous(), 1e-5)
    check("gelu_mul", launch.launch_gate_mul(gate, up, "gelu"), references.gelu_mul(gate, up).contiguous(), 1e-5)
    check(
        "gelu_mul with tanh",
        launch.launch_gate_mul(gate, up, "gelu_tanh"),
        references.gelu_mul(gate, up, True).contiguous(),
        1e-5,
    )


def attentions() -> None:
    sizes = ((1, 2, 2, 5, 70, 16), (2, 4, 2, 50, 130, 32), (1, 2, 1, 20, 20, 64))
    for (batch, heads, shared, queries, keys, width), causal, splits in itertools.product(sizes, (False, True), (1, 3)):
        q = torch.randn(batch, heads, queries, width)
        k, v = torch.randn(2, batch, shared, keys, width)
        result = launch.launch_attention(q, k, v, None, causal=causal, splits=splits)
        check(
            f"attention {keys} keys, causal {causal}, {splits} splits",
            result,
            references.attention(q, k, v, None, causal),
            1e-4,
        )
    q, k, v = (
        torch.randn(1, 9, 2, 32).transpose(1, 2) for _ in range(3)
    )  # [batch, tokens, heads, head_dim] transposed, as in a model
    result = launch.launch_attention(q, k, v, 0.3, causal=False)
    check("attention of views", result, references.attention(q, k, v, 0.3).contiguous(), 1e-4)


def masked_attentions() -> None:
    batch, heads, queries, keys, width = 2, 2, 6, 70, 16
    q = torch.randn(batch, heads, queries, width)
    k, v = torch.randn(2, batch, 1, keys, width)
    visible = torch.rand(batch, 1, queries, keys) > 0.4
    visible[0, 0, 3] = False  # a query that sees nothing
    padding = (torch.arange(keys) < torch.tensor([keys - 30, keys])[:, None])[:, None, None, :]
    added = torch.randn(1, heads, queries, keys)
    infinite = torch.zeros(batch, 1, queries, keys).masked_fill(~visible, float("-inf"))
    lowest = torch.zeros(batch, 1, queries, keys).masked_fill(~visible, torch.finfo(torch.float32).min)
    strided = torch.randn(keys, queries * 2, 1, 1).permute(3, 2, 1, 0)[:, :, ::2]
    masks = {
        "boolean": visible,
        "padding": padding,
        "added": added,
        "infinite": infinite,
        "lowest number": lowest,
        "strided": strided,
    }
    for (name, mask), splits in itertools.product(masks.items(), (1, 2)):
        result = launch.launch_attention(q, k, v, None, causal=False, mask=mask, splits=splits)
        check(f"attention, mask {name}", result, references.attention(q, k, v, None, False, mask), 1e-4)
    more_k, more_v = torch.randn(2, batch, 9, 1, width).transpose(2, 3)
    for causal, splits in itertools.product((False, True), (1, 3)):
        given = {"mask": torch.randn(queries, keys + 9)[None, None], "more": (more_k, more_v)}
        result = launch.launch_attention(q, k, v, 0.3, causal=causal, splits=splits, **given)
        expected = references.attention(q, k, v, 0.3, causal, given["mask"], more_k, more_v)
        check(f"attention, more keys, causal {causal}", result, expected, 1e-4)


def repeated_masks() -> None:
    """One mask for all queries is loaded once; a query stride that is not zero is respected."""
    q, k, v = torch.randn(3, 1, 2, 5, 16)
    hidden = torch.tensor([True, True, False, True, False])
    for name, mask in (("one row", hidden[None, None, None]), ("one column", hidden[None, None, :, None])):
        result = launch.launch_attention(q, k, v, None, causal=False, mask=mask)
        check(f"attention, mask of {name}", result, references.attention(q, k, v, None, False, mask), 1e-4)


# Also the transposed product, in both layouts of the weight.
TILES = (None, Tile(16, 16, 64, 2, 4, 2), Tile(16, 64, 64, 2, 4, 2))


def split_matmuls() -> None:
    for (rows, inner, columns), tile in itertools.product(((1, 192, 40), (5, 300, 33), (70, 256, 40)), TILES):
        a, b = torch.randn(rows, inner), torch.randn(columns, inner).t()
        for left, right in ((a, b), (a.t().contiguous().t(), b.contiguous())):
            parts = launch.launch_split_matmul(left, right, 2, tile=tile)
            check(f"split matmul {rows} {inner} {columns} in 2", parts.sum(0), a @ b, 2e-4)


def linear_acts() -> None:
    cases: list[tuple[str, Any, bool]] = [
        *((name, None, True) for name in ("none", "gelu", "gelu_tanh", "silu", "silu_mul", "gelu_mul", "gelu_tanh_mul")),
        *(("gelu_mul", tile, bias) for tile, bias in itertools.product(TILES[1:], (False, True))),
        *(("none", tile, False) for tile in TILES[1:]),
    ]  # fmt: skip
    for (rows, inner, columns), (name, tile, biased) in itertools.product(((3, 100, 33), (20, 64, 70)), cases):
        wide = columns * (2 if name.endswith("_mul") else 1)
        x, weight, bias = torch.randn(rows, inner), torch.randn(wide, inner) / 8, torch.randn(wide) if biased else None
        for given in (weight, weight.t().contiguous().t()):
            result = launch.launch_linear_act(x, given, bias, name, tile=tile)
            check(f"linear_act {name} {rows} {inner} {columns}", result, linear_act(x, weight, bias, name), 1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    norms()
    gates()
    attentions()
    masked_attentions()
    split_matmuls()
    repeated_masks()
    linear_acts()
