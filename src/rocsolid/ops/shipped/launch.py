"""Launches the Triton kernels: grid, block sizes and number of warps.

Sizes are chosen in threads (lanes); `warps` converts them to warps of the GPU: a wavefront of AMD Instinct GPUs has 64 lanes, a
wavefront of RDNA GPUs and an NVIDIA warp 32.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

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
LARGEST_ROW: Final = 16384
WIDTHS: Final = (16, 32, 64, 128, 256)
_LOG2_E: Final = 1.4426950408889634
_MIN_LANES, _MAX_LANES = 64, 1024
_PER_LANE: Final = 8  # elements: sixteen bytes in half precision
_GATE_BLOCK: Final = 1024
_MAX_SPLITS: Final = 16
_ATTENTION_WARPS: Final = 4  # matrix instructions work per warp, whatever its size


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
    return max(_MIN_LANES, int(triton.next_power_of_2(columns)) // _PER_LANE)


def _rows(x: Tensor) -> Tensor:
    """As rows with contiguous elements; copies only if they are not."""
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(-1) == 1 else flat.contiguous()


def launch_rms_norm(x: Tensor, weight: Tensor, eps: float, wrap: Wrap = launch_directly) -> Tensor:
    """RMS norm of every row."""
    rows = _rows(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count, columns = rows.shape[0], int(rows.shape[1])  # a constant of the compiled kernel
    wrap(rms_norm_kernel)[(count,)](
        rows, weight, out, rows.stride(0), columns, eps,
        BLOCK=triton.next_power_of_2(columns), num_warps=warps(_row_lanes(columns), x.device),
    )  # fmt: skip
    return out


def launch_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, wrap: Wrap = launch_directly
) -> tuple[Tensor, Tensor]:
    """Add the residual, then RMS norm of every row."""
    left, right = _rows(x), _rows(residual)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count, columns = left.shape[0], int(left.shape[1])
    wrap(add_rms_norm_kernel)[(count,)](
        left, right, weight, out, total, left.stride(0), right.stride(0), columns, eps,
        BLOCK=triton.next_power_of_2(columns), num_warps=warps(_row_lanes(columns), x.device),
    )  # fmt: skip
    return out, total


def launch_gate_mul(gate: Tensor, up: Tensor, kind: int, wrap: Wrap = launch_directly) -> Tensor:
    """Gate every row; views of one tensor are read without a copy."""
    left, right = _rows(gate), _rows(up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    count, columns = left.shape[0], int(left.shape[1])
    grid = (count, triton.cdiv(columns, _GATE_BLOCK))
    wrap(gate_mul_kernel)[grid](
        left, right, out, left.stride(0), right.stride(0), columns,
        KIND=kind, BLOCK=_GATE_BLOCK, num_warps=warps(_GATE_BLOCK // _PER_LANE, gate.device),
    )  # fmt: skip
    return out


def _precision() -> str:
    """Precision of float32 products: full, unless `torch.set_float32_matmul_precision` allows TF32."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def launch_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, *, causal: bool, splits: int = 0, wrap: Wrap = launch_directly
) -> Tensor:
    """Attention; with too few queries to fill the GPU, the keys are split over several programs."""
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    batch, heads, queries, width = q.shape[0], q.shape[1], q.shape[2], int(q.shape[3])
    keys = k.shape[2]
    block_m, block_n = (64 if queries > 16 else 16), (64 if width <= 128 else 32)  # noqa: PLR2004 - tile sizes
    blocks = triton.cdiv(queries, block_m)
    units = _chip(q.device)[1]
    if not splits:  # enough to fill the GPU, at most one per block of keys
        splits = max(1, min(_MAX_SPLITS, units // max(1, batch * heads * blocks), triton.cdiv(keys, block_n)))
    chunk = triton.cdiv(triton.cdiv(keys, splits), block_n) * block_n
    splits = triton.cdiv(keys, chunk)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lines = batch * heads * queries
    parts, peaks, sums = out, q, q  # the last two are unused unless the keys are split
    if splits > 1:
        parts = torch.empty((splits, lines, width), dtype=torch.float32, device=q.device)
        peaks = torch.empty((splits, lines), dtype=torch.float32, device=q.device)
        sums = torch.empty((splits, lines), dtype=torch.float32, device=q.device)
    factor = (width**-0.5 if scale is None else scale) * _LOG2_E
    wrap(attention_kernel)[(blocks, batch * heads, splits)](
        q, k, v, parts, peaks, sums,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        heads, heads // k.shape[1], queries, keys, chunk, factor,
        CAUSAL=causal, SPLIT=splits > 1, PRECISION=_precision(), WIDTH=width, BLOCK_M=block_m, BLOCK_N=block_n,
        num_warps=_ATTENTION_WARPS, num_stages=2,
    )  # fmt: skip
    if splits > 1:
        wrap(join_splits_kernel)[(lines,)](
            parts, peaks, sums, out, lines, splits,
            WIDTH=width, SPLITS=triton.next_power_of_2(splits), num_warps=warps(64, q.device),
        )  # fmt: skip
    return out
