"""The Triton kernels of the ready-made operators.

They do not depend on the warp size: Triton generates the reductions, for wavefronts of 64 lanes and for warps of 32.
Row offsets are 64-bit integers, because a KV cache can be larger than four gigabytes.

With PDL (programmatic dependent launch, on NVIDIA GPUs from Hopper on), a kernel starts while the previous one still runs. Until
`wait_for_previous` returns it may only load into the L2 cache, which is right even if the previous kernel writes there later.
"""

import triton
import triton.language as tl

LINE_BYTES: tl.constexpr = tl.constexpr(128)
EARLY_BYTES: tl.constexpr = tl.constexpr(
    98304
)  # of one matrix that a program loads into L2 early; all programs share the L2


@triton.jit
def load_into_l2(pointers):
    """Start loading the cache lines of these addresses into the L2 cache."""
    address = pointers.to(tl.int64, bitcast=True)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def wait_for_previous():
    """Wait until the previous kernel is complete, and let the next one start. The next one waits for this kernel in the same way."""
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def activate(value, ACTIVATION: tl.constexpr):
    """ACTIVATION is "none", "silu", "gelu" or "gelu_tanh" (GELU with tanh approximation)."""
    if ACTIVATION == "silu":
        value = value * tl.sigmoid(value)
    elif ACTIVATION == "gelu":
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        # tanh(z) is 2 sigmoid(2 z) - 1.
        value = value * tl.sigmoid(1.5957691216057308 * (value + 0.044715 * value * value * value))
    return value


@triton.jit
def rms_norm_kernel(x, weight, out, x_row_stride, columns, eps, BLOCK: tl.constexpr):
    """One row per program."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * x_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    inverse_rms = tl.rsqrt(tl.sum(value * value, 0) / columns + tl.cast(eps, tl.float32))
    tl.store(out + row * columns + column, (value * inverse_rms * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_rms_norm_kernel(
    x, residual, weight, out, total, x_row_stride, residual_row_stride, columns, eps, BLOCK: tl.constexpr
):
    """One row per program. The sum is rounded to the dtype of `total` before the norm, as if it were a separate operator."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    left = tl.load(x + row * x_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + row * residual_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + row * columns + column, rounded, mask=inside)
    value = rounded.to(tl.float32)
    inverse_rms = tl.rsqrt(tl.sum(value * value, 0) / columns + tl.cast(eps, tl.float32))
    tl.store(out + row * columns + column, (value * inverse_rms * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate_mul_kernel(
    gate, up, out, gate_row_stride, up_row_stride, columns, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):
    """One block of a row per program."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    gate_value = tl.load(gate + row * gate_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    up_value = tl.load(up + row * up_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    activated = activate(gate_value, ACTIVATION)
    tl.store(out + row * columns + column, (activated * up_value).to(out.dtype.element_ty), mask=inside)


@triton.jit
def attend_to_keys(
    query, maximum, total, result, key_tokens, value_tokens, k_token_stride, v_token_stride,
    mask_rows, mask_key_stride, query_index, queries, begin, end, earlier_keys, scale,
    MASK: tl.constexpr, MASK_PER_QUERY: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add the keys from `begin` to `end` of one tensor to the maximum, sum and result so far; `earlier_keys` keys are in another tensor."""
    dim = tl.arange(0, HEAD_DIM)
    for block_begin in range(begin, end, BLOCK_N):
        key_index = block_begin + tl.arange(0, BLOCK_N)
        in_range = key_index < end
        key = tl.load(
            key_tokens + key_index[None, :] * k_token_stride + dim[:, None], mask=in_range[None, :], other=0.0
        )
        scores = tl.dot(query, key, input_precision=PRECISION) * tl.cast(scale, tl.float32)
        visible = in_range[None, :]
        if CAUSAL:
            visible = visible & (earlier_keys + key_index[None, :] <= query_index[:, None])
        if MASK != "none":
            inside = in_range[None, :]
            if MASK_PER_QUERY:
                inside = inside & (query_index[:, None] < queries)
            given = tl.load(mask_rows + (earlier_keys + key_index[None, :]) * mask_key_stride, mask=inside, other=0)
            if MASK == "bool":
                visible = visible & (given != 0)
            else:  # only -inf hides a key: the most negative number must not become -inf
                bias = given.to(tl.float32)
                visible = visible & (bias > float("-inf"))
                scores += tl.maximum(bias * 1.4426950408889634, -3.4028234663852886e38)
        scores = tl.where(visible, scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        weights = tl.exp2(scores - base[:, None])
        correction = tl.exp2(maximum - base)
        total = total * correction + tl.sum(weights, 1)
        value = tl.load(
            value_tokens + key_index[:, None] * v_token_stride + dim[None, :], mask=in_range[:, None], other=0.0
        )
        result = result * correction[:, None] + tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        maximum = new_maximum
    return maximum, total, result


@triton.jit
def load_keys_into_l2(tokens, token_stride, begin, end, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr):
    """Start loading the first keys or values from `begin` to `end` into the L2 cache."""
    element_bytes: tl.constexpr = tokens.dtype.element_ty.primitive_bitwidth // 8
    elements: tl.constexpr = LINE_BYTES // element_bytes
    lines: tl.constexpr = (HEAD_DIM + elements - 1) // elements
    line = tl.arange(0, lines) * elements
    for block_begin in range(begin, tl.minimum(end, begin + EARLY_BYTES // (HEAD_DIM * element_bytes)), BLOCK_N):
        index = tl.minimum(block_begin + tl.arange(0, BLOCK_N), end - 1)
        load_into_l2(tokens + index[:, None] * token_stride + line[None, :])


@triton.jit
def attention_kernel(
    q, k, v, more_k, more_v, mask, out, maxima, sums,
    q_batch_stride, q_head_stride, q_token_stride,
    k_batch_stride, k_head_stride, k_token_stride,
    v_batch_stride, v_head_stride, v_token_stride,
    more_k_batch_stride, more_k_head_stride, more_k_token_stride,
    more_v_batch_stride, more_v_head_stride, more_v_token_stride,
    mask_batch_stride, mask_head_stride, mask_query_stride, mask_key_stride,
    out_batch_stride, out_head_stride, out_token_stride,
    heads, heads_per_kv_head, queries, first_keys, keys, keys_per_split, scale,
    MORE: tl.constexpr, MASK: tl.constexpr, MASK_PER_QUERY: tl.constexpr, CAUSAL: tl.constexpr, SPLIT_KEYS: tl.constexpr,
    PDL: tl.constexpr, PRECISION: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One block of queries and one split of the keys per program.

    With MORE, the keys and values after the first `first_keys` are in `more_k` and `more_v`. MASK is "none", "bool" (true: visible)
    or "add", with MASK_PER_QUERY not the same for all queries. With SPLIT_KEYS, the result, the maxima and the sums of each split are stored, and `join_splits_kernel` combines them.
    A pointer that is not used is that of `out`.
    """
    query_block, batch_and_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, head = (batch_and_head // heads).to(tl.int64), (batch_and_head % heads).to(tl.int64)
    kv_head = head // heads_per_kv_head
    query_index = query_block * BLOCK_M + tl.arange(0, BLOCK_M)
    dim = tl.arange(0, HEAD_DIM)
    begin = split * keys_per_split
    end = tl.minimum(begin + keys_per_split, keys)
    if CAUSAL:
        end = tl.minimum(end, (query_block + 1) * BLOCK_M)
    first_k = k + batch * k_batch_stride + kv_head * k_head_stride
    first_v = v + batch * v_batch_stride + kv_head * v_head_stride
    first_end = tl.minimum(end, first_keys)
    if PDL:
        load_keys_into_l2(first_k, k_token_stride, begin, first_end, HEAD_DIM, BLOCK_N)
        load_keys_into_l2(first_v, v_token_stride, begin, first_end, HEAD_DIM, BLOCK_N)
        wait_for_previous()
    query = tl.load(
        q + batch * q_batch_stride + head * q_head_stride + query_index[:, None] * q_token_stride + dim[None, :],
        mask=query_index[:, None] < queries,
        other=0.0,
    )
    mask_rows = mask + batch * mask_batch_stride + head * mask_head_stride
    if MASK_PER_QUERY:
        mask_rows += query_index[:, None] * mask_query_stride
    maximum = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    maximum, total, result = attend_to_keys(
        query, maximum, total, result, first_k, first_v, k_token_stride, v_token_stride,
        mask_rows, mask_key_stride, query_index, queries, begin, first_end, 0, scale,
        MASK, MASK_PER_QUERY, CAUSAL, PRECISION, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    if MORE:
        maximum, total, result = attend_to_keys(
            query, maximum, total, result,
            more_k + batch * more_k_batch_stride + kv_head * more_k_head_stride,
            more_v + batch * more_v_batch_stride + kv_head * more_v_head_stride,
            more_k_token_stride, more_v_token_stride,
            mask_rows, mask_key_stride, query_index, queries,
            tl.maximum(begin - first_keys, 0), end - first_keys, first_keys, scale,
            MASK, MASK_PER_QUERY, CAUSAL, PRECISION, HEAD_DIM, BLOCK_N,
        )  # fmt: skip
    if SPLIT_KEYS:
        split_row = (split.to(tl.int64) * tl.num_programs(1) + batch_and_head) * queries + query_index
        tl.store(out + split_row[:, None] * HEAD_DIM + dim[None, :], result, mask=query_index[:, None] < queries)
        tl.store(maxima + split_row, maximum, mask=query_index < queries)
        tl.store(sums + split_row, total, mask=query_index < queries)
    else:
        normalised = result / tl.where(total == 0.0, 1.0, total)[:, None]
        tokens = out + batch * out_batch_stride + head * out_head_stride + query_index[:, None] * out_token_stride
        tl.store(tokens + dim[None, :], normalised.to(out.dtype.element_ty), mask=query_index[:, None] < queries)


@triton.jit
def join_splits_kernel(
    split_results, maxima, sums, out, out_batch_stride, out_head_stride, out_token_stride,
    heads, queries, rows, split_count, PDL: tl.constexpr, HEAD_DIM: tl.constexpr, SPLIT_BLOCK: tl.constexpr,
):  # fmt: skip
    """One query of one head per program: combine the results of all splits. SPLIT_BLOCK is a power of two >= split_count."""
    if PDL:
        wait_for_previous()
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLIT_BLOCK)
    dim = tl.arange(0, HEAD_DIM)
    in_range = split < split_count
    maximum = tl.load(maxima + split * rows + row, mask=in_range, other=float("-inf"))
    split_sum = tl.load(sums + split * rows + row, mask=in_range, other=0.0)
    overall_maximum = tl.max(maximum, 0)
    weight = tl.exp2(maximum - tl.where(overall_maximum == float("-inf"), 0.0, overall_maximum))
    split_result = tl.load(
        split_results + (split[:, None] * rows + row) * HEAD_DIM + dim[None, :], mask=in_range[:, None], other=0.0
    )
    total = tl.sum(split_sum * weight, 0)
    result = tl.sum(split_result * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    batch, head, query = row // (heads * queries), row // queries % heads, row % queries
    token = out + batch * out_batch_stride + head * out_head_stride + query * out_token_stride
    tl.store(token + dim, result.to(out.dtype.element_ty))


@triton.jit
def load_columns_into_l2(
    b, first_column, columns, begin, end, b_inner_stride, b_column_stride,
    ROW_MAJOR: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Start loading the first part of a block of columns of `b` into the L2 cache. ROW_MAJOR: neighbours in a row are so in memory."""
    element_bytes: tl.constexpr = b.dtype.element_ty.primitive_bitwidth // 8
    elements: tl.constexpr = LINE_BYTES // element_bytes
    end = tl.minimum(end, begin + EARLY_BYTES // (BLOCK_N * element_bytes))
    if ROW_MAJOR:
        column = first_column + tl.arange(0, (BLOCK_N + elements - 1) // elements) * elements
        for block_begin in range(begin, end, BLOCK_K):
            index = tl.minimum(block_begin + tl.arange(0, BLOCK_K), end - 1)
            line = (
                index[:, None].to(tl.int64) * b_inner_stride
                + tl.minimum(column, columns - 1)[None, :] * b_column_stride
            )
            load_into_l2(b + line)
    else:
        column = tl.minimum(first_column + tl.arange(0, BLOCK_N), columns - 1)
        for block_begin in range(begin, end, 8 * elements):
            index = tl.minimum(block_begin + tl.arange(0, 8) * elements, end - 1)
            line = column[:, None].to(tl.int64) * b_column_stride + index[None, :] * b_inner_stride
            load_into_l2(b + line)


@triton.jit
def multiply_blocks(
    a, b, row, column, rows, columns, begin, end, a_row_stride, b_inner_stride, b_column_stride,
    GATED: tl.constexpr, EVEN: tl.constexpr, SWAP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The product of rows of `a` and columns of `b` over the inner dimension from `begin` to `end`, in float32.

    GATED: `b` has twice as many columns; the second result is the product with those of the second half. EVEN: the inner dimension is
    a multiple of BLOCK_K. SWAP: compute the transposed product, because a matrix instruction of Hopper has at least 64 rows.
    """
    index = begin + tl.arange(0, BLOCK_K)
    left = a + row[:, None].to(tl.int64) * a_row_stride + index[None, :]
    right = b + index[:, None].to(tl.int64) * b_inner_stride + column[None, :].to(tl.int64) * b_column_stride
    second_half = tl.cast(columns, tl.int64) * b_column_stride
    in_rows, in_columns = row[:, None] < rows, column[None, :] < columns
    if SWAP:
        total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        second = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    else:
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        second = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block_begin in range(begin, end, BLOCK_K):
        if EVEN:
            of_a, of_b = in_rows, in_columns
        else:
            in_range = block_begin + tl.arange(0, BLOCK_K) < end
            of_a, of_b = in_rows & in_range[None, :], in_columns & in_range[:, None]
        a_block = tl.load(left, mask=of_a, other=0.0)
        b_block = tl.load(right, mask=of_b, other=0.0)
        total = add_product(a_block, b_block, total, SWAP, PRECISION)
        if GATED:
            b_block = tl.load(right + second_half, mask=of_b, other=0.0)
            second = add_product(a_block, b_block, second, SWAP, PRECISION)
        left += BLOCK_K
        right += BLOCK_K * b_inner_stride
    if SWAP:
        total = tl.trans(total)
        if GATED:
            second = tl.trans(second)
    return total, second


@triton.jit
def add_product(a_block, b_block, total, SWAP: tl.constexpr, PRECISION: tl.constexpr):
    """Add the product of two blocks to `total`, which is transposed with SWAP."""
    if SWAP:
        total = tl.dot(tl.trans(b_block), tl.trans(a_block), total, input_precision=PRECISION)
    else:
        total = tl.dot(a_block, b_block, total, input_precision=PRECISION)
    return total


@triton.jit
def split_matmul_kernel(
    a, b, out, rows, columns, inner, inner_per_split, a_row_stride, b_inner_stride, b_column_stride,
    EVEN: tl.constexpr, SWAP: tl.constexpr, ROW_MAJOR: tl.constexpr, PDL: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One block of the product over one part of the inner dimension per program. EVEN: every part is a multiple of BLOCK_K."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_column, split = tl.program_id(1) * BLOCK_N, tl.program_id(2)
    column = first_column + tl.arange(0, BLOCK_N)
    begin = split * inner_per_split
    end = tl.minimum(begin + inner_per_split, inner)
    if PDL:
        load_columns_into_l2(
            b, first_column, columns, begin, end, b_inner_stride, b_column_stride, ROW_MAJOR, BLOCK_N, BLOCK_K
        )
        wait_for_previous()
    total, _ = multiply_blocks(
        a, b, row, column, rows, columns, begin, end, a_row_stride, b_inner_stride, b_column_stride,
        False, EVEN, SWAP, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    to = out + (split.to(tl.int64) * rows + row[:, None]) * columns + column[None, :]
    tl.store(to, total, mask=(row[:, None] < rows) & (column[None, :] < columns))


@triton.jit
def linear_act_kernel(
    x, weight, bias, out, rows, columns, inner, x_row_stride, weight_inner_stride, weight_column_stride,
    ACTIVATION: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr, EVEN: tl.constexpr, SWAP: tl.constexpr,
    ROW_MAJOR: tl.constexpr, PDL: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One block of a linear layer and its activation per program. GATED: the activation is multiplied with a second product."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_column = tl.program_id(1) * BLOCK_N
    column = first_column + tl.arange(0, BLOCK_N)
    if PDL:
        load_columns_into_l2(
            weight,
            first_column,
            columns,
            0,
            inner,
            weight_inner_stride,
            weight_column_stride,
            ROW_MAJOR,
            BLOCK_N,
            BLOCK_K,
        )
        if GATED:
            load_columns_into_l2(
                weight + tl.cast(columns, tl.int64) * weight_column_stride, first_column, columns, 0, inner,
                weight_inner_stride, weight_column_stride, ROW_MAJOR, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        wait_for_previous()
    in_columns = column < columns
    if BIAS:  # before the product, which takes longer than these loads
        first_bias = tl.load(bias + column, mask=in_columns, other=0.0)
        if GATED:
            second_bias = tl.load(bias + columns + column, mask=in_columns, other=0.0)
    first, second = multiply_blocks(
        x, weight, row, column, rows, columns, 0, inner, x_row_stride, weight_inner_stride, weight_column_stride,
        GATED, EVEN, SWAP, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    if BIAS:
        first += first_bias.to(tl.float32)[None, :]
    result = activate(first, ACTIVATION)
    if GATED:
        if BIAS:
            second += second_bias.to(tl.float32)[None, :]
        result *= second
    to = out + row[:, None].to(tl.int64) * columns + column[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=(row[:, None] < rows) & in_columns[None, :])
