"""Launches the Triton kernels: grid, block sizes and number of warps.

Sizes are chosen in lanes (threads); `warps` converts them to warps. A wavefront of an AMD Instinct GPU has 64 lanes, a wavefront
of an RDNA GPU and a warp of an NVIDIA GPU have 32.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal

import torch
import triton
from torch import Tensor

from rocsolid.ops.shipped.kernels import (
    add_rms_norm_kernel,
    attention_kernel,
    gate_mul_kernel,
    join_splits_kernel,
    rms_norm_kernel,
)

Wrap = Callable[[Any], Any]
Activation = Literal["silu", "gelu", "gelu_tanh"]
MAX_COLUMNS: Final = 16384  # a row must fit in one block
HEAD_DIMS: Final = (16, 32, 64, 128, 256)
_LOG2_E: Final = 1.4426950408889634
_MIN_LANES, _MAX_LANES = 64, 1024
_ELEMENTS_PER_LANE: Final = 8  # sixteen bytes in half precision
_GATE_BLOCK: Final = 1024
_MAX_SPLITS: Final = 16
_ATTENTION_WARPS: Final = 4  # a matrix instruction uses one warp, independent of its size


def launch_directly(kernel: Any) -> Any:
    """The default `wrap`: launch the kernel directly. Under `torch.compile`, `torch.library.wrap_triton` is used instead."""
    return kernel


def warps(lanes: int, device: torch.device) -> int:
    """The number of warps of this GPU for that many lanes."""
    return max(1, min(lanes, _MAX_LANES) // _chip(device)[0])


@cache
def _chip(device: torch.device) -> tuple[int, int]:
    """Lanes per warp, and number of multiprocessors or compute units."""
    if device.type != "cuda":
        return 32, 1
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "warp_size", 32)), int(properties.multi_processor_count)


def _row_lanes(columns: int) -> int:
    return max(_MIN_LANES, int(triton.next_power_of_2(columns)) // _ELEMENTS_PER_LANE)


def _rows(x: Tensor) -> Tensor:
    """Return `x` as a matrix whose rows are contiguous; copies only if they are not."""
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(-1) == 1 else flat.contiguous()


def launch_rms_norm(x: Tensor, weight: Tensor, eps: float, wrap: Wrap = launch_directly) -> Tensor:
    """Return the RMS norm of every row."""
    rows = _rows(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    # int() makes `columns` a constant of the compiled graph, because BLOCK depends on it.
    count, columns = rows.shape[0], int(rows.shape[1])
    wrap(rms_norm_kernel)[(count,)](
        rows, weight, out, rows.stride(0), columns, eps,
        BLOCK=triton.next_power_of_2(columns), num_warps=warps(_row_lanes(columns), x.device),
    )  # fmt: skip
    return out


def launch_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, wrap: Wrap = launch_directly
) -> tuple[Tensor, Tensor]:
    """Add the residual; return the RMS norm of every row, and the sum."""
    left, right = _rows(x), _rows(residual)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count, columns = left.shape[0], int(left.shape[1])
    wrap(add_rms_norm_kernel)[(count,)](
        left, right, weight, out, total, left.stride(0), right.stride(0), columns, eps,
        BLOCK=triton.next_power_of_2(columns), num_warps=warps(_row_lanes(columns), x.device),
    )  # fmt: skip
    return out, total


def launch_gate_mul(gate: Tensor, up: Tensor, activation: Activation, wrap: Wrap = launch_directly) -> Tensor:
    """Multiply `up` by the activation of `gate`; views of one tensor are read without a copy."""
    left, right = _rows(gate), _rows(up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    count, columns = left.shape[0], int(left.shape[1])
    grid = (count, triton.cdiv(columns, _GATE_BLOCK))
    wrap(gate_mul_kernel)[grid](
        left, right, out, left.stride(0), right.stride(0), columns,
        ACTIVATION=activation, BLOCK=_GATE_BLOCK, num_warps=warps(_GATE_BLOCK // _ELEMENTS_PER_LANE, gate.device),
    )  # fmt: skip
    return out


def _precision() -> str:
    """Precision of float32 products: full, unless `torch.set_float32_matmul_precision` allows TF32."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def launch_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, *, causal: bool, splits: int = 0, wrap: Wrap = launch_directly
) -> Tensor:
    """Return the attention. If there are too few queries to fill the GPU, the keys are split over several programs.

    `splits` sets the number of splits; 0 chooses it.
    """
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    batch, heads, queries, head_dim = q.shape[0], q.shape[1], q.shape[2], int(q.shape[3])
    keys = k.shape[2]
    block_m, block_n = (64 if queries > 16 else 16), (64 if head_dim <= 128 else 32)  # noqa: PLR2004 - tile sizes
    query_blocks = triton.cdiv(queries, block_m)
    compute_units = _chip(q.device)[1]
    if not splits:  # enough to fill the GPU, at most one per block of keys
        splits = max(
            1, min(_MAX_SPLITS, compute_units // max(1, batch * heads * query_blocks), triton.cdiv(keys, block_n))
        )
    keys_per_split = triton.cdiv(triton.cdiv(keys, splits), block_n) * block_n
    splits = triton.cdiv(keys, keys_per_split)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    rows = batch * heads * queries
    split_results, maxima, sums = out, q, q  # without splits, the kernel writes to `out` and does not use the other two
    if splits > 1:
        split_results = torch.empty((splits, rows, head_dim), dtype=torch.float32, device=q.device)
        maxima = torch.empty((splits, rows), dtype=torch.float32, device=q.device)
        sums = torch.empty((splits, rows), dtype=torch.float32, device=q.device)
    factor = (head_dim**-0.5 if scale is None else scale) * _LOG2_E  # the kernel uses exp2 instead of exp
    wrap(attention_kernel)[(query_blocks, batch * heads, splits)](
        q, k, v, split_results, maxima, sums,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        heads, heads // k.shape[1], queries, keys, keys_per_split, factor,
        CAUSAL=causal, SPLIT_KEYS=splits > 1, PRECISION=_precision(),
        HEAD_DIM=head_dim, BLOCK_M=block_m, BLOCK_N=block_n,
        num_warps=_ATTENTION_WARPS, num_stages=2,
    )  # fmt: skip
    if splits > 1:
        wrap(join_splits_kernel)[(rows,)](
            split_results, maxima, sums, out, rows, splits,
            HEAD_DIM=head_dim, SPLIT_BLOCK=triton.next_power_of_2(splits), num_warps=warps(_MIN_LANES, q.device),
        )  # fmt: skip
    return out
