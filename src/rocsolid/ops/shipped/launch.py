"""Launches the Triton kernels: grid, block sizes and number of warps.

Sizes are chosen in lanes (threads); `warps` converts them to warps. A wavefront of an AMD Instinct GPU has 64 lanes, a wavefront
of an RDNA GPU and a warp of an NVIDIA GPU have 32.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import torch
import triton
from torch import Tensor

from rocsolid.ops.shipped import tiles
from rocsolid.ops.shipped.device import Gpu, gpu
from rocsolid.ops.shipped.kernels import (
    add_rms_norm_kernel,
    attention_kernel,
    gate_mul_kernel,
    join_splits_kernel,
    linear_act_kernel,
    rms_norm_kernel,
    split_matmul_kernel,
)
from rocsolid.ops.shipped.tiles import Tile

Wrap = Callable[[Any], Any]
Activation = Literal["silu", "gelu", "gelu_tanh"]
MAX_COLUMNS: Final = 16384  # a row must fit in one block
_LOG2_E: Final = 1.4426950408889634
_MIN_LANES, _MAX_LANES = 64, 1024
_ELEMENTS_PER_LANE: Final = 8  # sixteen bytes in half precision
_GATE_BLOCK: Final = 1024
_MATRIX_ROWS: Final = 64  # of Hopper's matrix instruction


def launch_directly(kernel: Any) -> Any:
    """The default `wrap`: launch the kernel directly. Under `torch.compile`, `torch.library.wrap_triton` is used instead."""
    return kernel


def warps(lanes: int, device: torch.device) -> int:
    """The number of warps of this GPU for that many lanes."""
    return max(1, min(lanes, _MAX_LANES) // gpu(device).lanes)


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


def _overlapping(chip: Gpu) -> dict[str, bool]:
    """The option of a launch that lets the kernel start before the previous one has ended."""
    return {"launch_pdl": True} if chip.has_pdl else {}


def launch_attention(  # noqa: PLR0913 - the arguments of attention
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    *,
    causal: bool,
    mask: Tensor | None = None,
    more: tuple[Tensor, Tensor] | None = None,
    splits: int = 0,
    tile: Tile | None = None,
    wrap: Wrap = launch_directly,
) -> Tensor:
    """Return the attention; tokens are next to each other, as with torch's flash attention. If there are too few queries to fill the GPU, the keys are split over several programs.

    `mask` has four dimensions, each of which may be 1. `more` are further keys and values, after `k` and `v`. `splits` sets the
    number of splits; 0 chooses it.
    """
    if tile is None:
        batch, heads, queries, head_dim = q.shape
        keys, chip = k.shape[2] + (more[0].shape[2] if more else 0), gpu(q.device)
        tile = tiles.choose(
            tiles.attention_key(batch * heads, queries, keys, head_dim, q.dtype),
            chip,
            lambda: tiles.attention_tiles(
                batch * heads, queries, keys, head_dim, chip, splits, element_bytes=q.dtype.itemsize
            ),
            lambda t: launch_attention(q, k, v, scale, causal=causal, mask=mask, more=more, tile=t),
            splits,
        )
    more_k, more_v = more or (k, v)
    q, k, v, more_k, more_v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v, more_k, more_v))
    batch, heads, queries, head_dim = q.shape
    keys, chip = k.shape[2] + (more_k.shape[2] if more else 0), gpu(q.device)
    keys_per_split = triton.cdiv(triton.cdiv(keys, tile.splits), tile.columns) * tile.columns
    splits = triton.cdiv(keys, keys_per_split)
    out = torch.empty((batch, queries, heads, head_dim), dtype=q.dtype, device=q.device).transpose(1, 2)
    rows = batch * heads * queries
    split_results = maxima = sums = out
    if splits > 1:
        split_results = torch.empty((splits, rows, head_dim), dtype=torch.float32, device=q.device)
        maxima = torch.empty((splits, rows), dtype=torch.float32, device=q.device)
        sums = torch.empty((splits, rows), dtype=torch.float32, device=q.device)
    factor = (head_dim**-0.5 if scale is None else scale) * _LOG2_E  # the kernel uses exp2 instead of exp
    kind, mask_strides = "none", (0, 0, 0, 0)
    if mask is not None:
        kind = "bool" if mask.dtype == torch.bool else "add"
        mask_strides = mask.expand(batch, heads, queries, keys).stride()  # 0 where the mask is repeated
    wrap(attention_kernel)[(triton.cdiv(queries, tile.rows), batch * heads, splits)](
        q, k, v, more_k if more else out, more_v if more else out, out if mask is None else mask, split_results, maxima, sums,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *more_k.stride()[:3], *more_v.stride()[:3], *mask_strides,
        *out.stride()[:3],
        heads, heads // k.shape[1], queries, k.shape[2], keys, keys_per_split, factor,
        MORE=more is not None, MASK=kind, MASK_PER_QUERY=mask_strides[2] != 0, CAUSAL=causal, SPLIT_KEYS=splits > 1,
        PDL=chip.has_pdl, PRECISION=_precision(), HEAD_DIM=head_dim, BLOCK_M=tile.rows, BLOCK_N=tile.columns, num_warps=tile.warps, num_stages=tile.stages,
        **_overlapping(chip),
    )  # fmt: skip
    if splits > 1:
        wrap(join_splits_kernel)[(rows,)](
            split_results, maxima, sums, out, *out.stride()[:3], heads, queries, rows, splits, PDL=chip.has_pdl,
            HEAD_DIM=head_dim, SPLIT_BLOCK=triton.next_power_of_2(splits), num_warps=warps(_MIN_LANES, q.device),
            **_overlapping(chip),
        )  # fmt: skip
    return out


def _matmul_options(tile: Tile, chip: Gpu, inner: int, b: Tensor) -> dict[str, Any]:
    """The constants and options of both kernels that multiply matrices; `b` is the matrix of which blocks of columns are read."""
    return {
        "EVEN": inner % tile.inner == 0,
        "SWAP": tile.rows < _MATRIX_ROWS <= tile.columns,
        "ROW_MAJOR": b.stride(1) == 1,
        "PDL": chip.has_pdl,
        "PRECISION": _precision(),
        "BLOCK_M": tile.rows,
        "BLOCK_N": tile.columns,
        "BLOCK_K": tile.inner,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        **_overlapping(chip),
    }


def launch_split_matmul(
    a: Tensor, b: Tensor, splits: int, wrap: Wrap = launch_directly, *, tile: Tile | None = None
) -> Tensor:
    """Return the products of `splits` parts of the inner dimension, in float32; their sum is the product of the matrices."""
    a = a if a.stride(-1) == 1 else a.contiguous()
    (rows, inner), columns, chip = a.shape, b.shape[1], gpu(a.device)
    tile = tile or tiles.choose(
        tiles.product_key("split_matmul", rows, inner, columns, a.dtype),
        chip,
        lambda: tiles.product_tiles(rows, inner, columns, chip, splits, element_bytes=a.dtype.itemsize),
        lambda t: launch_split_matmul(a, b, splits, tile=t),
        splits,
    )
    inner_per_split = triton.cdiv(triton.cdiv(inner, splits), tile.inner) * tile.inner
    out = torch.empty((splits, rows, columns), dtype=torch.float32, device=a.device)
    wrap(split_matmul_kernel)[(triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns), splits)](
        a, b, out, rows, columns, inner, inner_per_split, a.stride(0), *b.stride(), **_matmul_options(tile, chip, inner, b)
    )  # fmt: skip
    return out


def launch_linear_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    wrap: Wrap = launch_directly,
    *,
    tile: Tile | None = None,
) -> Tensor:
    """Return the activation of `x @ weight.T + bias`; with `_mul`, that of the first half of the columns times the second half."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    name, gated = activation.removesuffix("_mul"), activation.endswith("_mul")
    (rows, inner), columns, chip = x.shape, weight.shape[0] // (2 if gated else 1), gpu(x.device)
    tile = tile or tiles.choose(
        tiles.product_key("linear_act gated" if gated else "linear_act", rows, inner, columns, x.dtype),
        chip,
        lambda: tiles.product_tiles(rows, inner, columns, chip, 1, gated=gated, element_bytes=x.dtype.itemsize),
        lambda t: launch_linear_act(x, weight, bias, activation, tile=t),
    )
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    b = weight.t()
    wrap(linear_act_kernel)[(triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns))](
        x, weight, out if bias is None else bias.contiguous(), out, rows, columns, inner, x.stride(0), *b.stride(),
        ACTIVATION=name, GATED=gated, BIAS=bias is not None, **_matmul_options(tile, chip, inner, b),
    )  # fmt: skip
    return out
