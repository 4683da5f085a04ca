"""The Triton kernels of the ready-made operators.

They do not depend on the warp size: reductions are left to the compiler, so they work with wavefronts of 64 and warps of 32.
Row offsets are 64 bits wide, because a KV cache can be larger than four gigabytes.
"""

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, row_stride, columns, eps, BLOCK: tl.constexpr):
    """One row per program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * row_stride + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    inverse_rms = tl.rsqrt(tl.sum(value * value, 0) / columns + tl.cast(eps, tl.float32))
    tl.store(out + row * columns + at, (value * inverse_rms * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_rms_norm_kernel(x, residual, weight, out, total, x_stride, residual_stride, columns, eps, BLOCK: tl.constexpr):
    """One row per program; the sum is rounded before the norm, as between two separate operators."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    left = tl.load(x + row * x_stride + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + row * residual_stride + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    both = (left + right).to(total.dtype.element_ty)
    tl.store(total + row * columns + at, both, mask=inside)
    value = both.to(tl.float32)
    inverse_rms = tl.rsqrt(tl.sum(value * value, 0) / columns + tl.cast(eps, tl.float32))
    tl.store(out + row * columns + at, (value * inverse_rms * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate_mul_kernel(gate, up, out, gate_stride, up_stride, columns, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """One block of a row per program. KIND 0: SiLU, 1: GELU, 2: GELU with tanh approximation."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(gate + row * gate_stride + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(up + row * up_stride + at, mask=inside, other=0.0).to(tl.float32)
    if KIND == 0:
        result = value * tl.sigmoid(value)
    elif KIND == 1:
        result = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    else:
        # tanh(z) is 2 sigmoid(2 z) - 1.
        result = value * tl.sigmoid(1.5957691216057308 * (value + 0.044715 * value * value * value))
    tl.store(out + row * columns + at, (result * other).to(out.dtype.element_ty), mask=inside)


@triton.jit
def attention_kernel(
    q, k, v, out, peaks, sums,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token,
    heads, groups, queries, keys, chunk, scale,
    CAUSAL: tl.constexpr, SPLIT: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One block of queries and one chunk of the keys per program; with SPLIT, `join_splits_kernel` combines the chunks."""
    block, pair, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, WIDTH)
    query = tl.load(
        q + batch * q_batch + head * q_head + rows[:, None] * q_token + dims[None, :],
        mask=rows[:, None] < queries,
        other=0.0,
    )
    keys_at = k + batch * k_batch + (head // groups) * k_head
    values_at = v + batch * v_batch + (head // groups) * v_head
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    first = split * chunk
    last = tl.minimum(first + chunk, keys)
    if CAUSAL:
        last = tl.minimum(last, (block + 1) * BLOCK_M)
    for start in range(first, last, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        in_range = columns < last
        key = tl.load(keys_at + columns[None, :] * k_token + dims[:, None], mask=in_range[None, :], other=0.0)
        scores = tl.dot(query, key, input_precision=PRECISION) * tl.cast(scale, tl.float32)
        visible = in_range[None, :]
        if CAUSAL:
            visible = visible & (columns[None, :] <= rows[:, None])
        scores = tl.where(visible, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp2(scores - base[:, None])
        correction = tl.exp2(peak - base)
        total = total * correction + tl.sum(weights, 1)
        value = tl.load(values_at + columns[:, None] * v_token + dims[None, :], mask=in_range[:, None], other=0.0)
        result = result * correction[:, None] + tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        peak = new_peak
    line = pair.to(tl.int64) * queries + rows
    if SPLIT:
        offset = split.to(tl.int64) * tl.num_programs(1) * queries + line
        tl.store(out + offset[:, None] * WIDTH + dims[None, :], result, mask=rows[:, None] < queries)
        tl.store(peaks + offset, peak, mask=rows < queries)
        tl.store(sums + offset, total, mask=rows < queries)
    else:
        normalised = result / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(
            out + line[:, None] * WIDTH + dims[None, :],
            normalised.to(out.dtype.element_ty),
            mask=rows[:, None] < queries,
        )


@triton.jit
def join_splits_kernel(parts, peaks, sums, out, lines, splits, WIDTH: tl.constexpr, SPLITS: tl.constexpr):
    """One query of one head per program: combine the chunks, weighted by their maxima."""
    line = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, SPLITS)
    dims = tl.arange(0, WIDTH)
    in_range = number < splits
    peak = tl.load(peaks + number * lines + line, mask=in_range, other=float("-inf"))
    total = tl.load(sums + number * lines + line, mask=in_range, other=0.0)
    highest = tl.max(peak, 0)
    weight = tl.exp2(peak - tl.where(highest == float("-inf"), 0.0, highest))
    part = tl.load(parts + (number[:, None] * lines + line) * WIDTH + dims[None, :], mask=in_range[:, None], other=0.0)
    whole = tl.sum(total * weight, 0)
    result = tl.sum(part * weight[:, None], 0) / tl.where(whole == 0.0, 1.0, whole)
    tl.store(out + line * WIDTH + dims, result.to(out.dtype.element_ty))
