"""Runs every kernel in Triton's interpreter on the CPU and compares it with its reference.

A separate program, because TRITON_INTERPRET must be set before Triton is imported. Unlike a GPU, the interpreter rounds bfloat16
towards zero, hence the wider tolerance.
"""

import itertools

import torch

from rocsolid.ops.shipped import launch, references


def check(name: str, made: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    off = (made.float() - wanted.float()).abs().max().item()
    print(f"{name} {off:.2e}")  # noqa: T201 - read by the test
    assert off <= tolerance, (name, off)
    assert made.dtype == wanted.dtype
    assert made.is_contiguous()


def norms() -> None:
    for rows, columns, dtype in ((3, 64, torch.float32), (2, 100, torch.bfloat16), (1, 1024, torch.float32)):
        x, residual = torch.randn(rows, columns).to(dtype), torch.randn(rows, columns).to(dtype)
        weight = torch.randn(columns).to(dtype)
        tolerance = 1e-5 if dtype is torch.float32 else 4e-2
        check("rms_norm", launch.launch_rms_norm(x, weight, 1e-6), references.rms_norm(x, weight, 1e-6), tolerance)
        made = launch.launch_add_rms_norm(x, residual, weight, 1e-6)
        wanted = references.add_rms_norm(x, residual, weight, 1e-6)
        check("add_rms_norm", made[0], wanted[0], tolerance)
        check("add_rms_norm, the sum", made[1], wanted[1], 0.0 if dtype is torch.float32 else 4e-2)
    wide = torch.randn(4, 5, 96)[..., ::3]  # elements that do not lie side by side
    check(
        "rms_norm of a slice",
        launch.launch_rms_norm(wide, torch.ones(32), 1e-6),
        references.rms_norm(wide, torch.ones(32)),
        1e-5,
    )


def gates() -> None:
    both = torch.randn(3, 2 * 1100)
    gate, up = both.chunk(2, -1)
    check("silu_mul", launch.launch_gate_mul(gate, up, 0), references.silu_mul(gate, up).contiguous(), 1e-5)
    check("gelu_mul", launch.launch_gate_mul(gate, up, 1), references.gelu_mul(gate, up).contiguous(), 1e-5)
    check(
        "gelu_mul by tanh", launch.launch_gate_mul(gate, up, 2), references.gelu_mul(gate, up, True).contiguous(), 1e-5
    )


def attentions() -> None:
    sizes = ((1, 2, 2, 5, 70, 16), (2, 4, 2, 50, 130, 32), (1, 2, 1, 20, 20, 64))
    for (batch, heads, shared, queries, keys, width), causal, splits in itertools.product(sizes, (False, True), (1, 3)):
        q = torch.randn(batch, heads, queries, width)
        k, v = torch.randn(2, batch, shared, keys, width)
        made = launch.launch_attention(q, k, v, None, causal=causal, splits=splits)
        check(
            f"attention {keys} keys, causal {causal}, {splits} splits",
            made,
            references.attention(q, k, v, None, causal),
            1e-4,
        )
    q, k, v = (torch.randn(1, 9, 2, 32).transpose(1, 2) for _ in range(3))  # tokens before heads, as layers make them
    made = launch.launch_attention(q, k, v, 0.3, causal=False)
    check("attention of views", made, references.attention(q, k, v, 0.3).contiguous(), 1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    norms()
    gates()
    attentions()
