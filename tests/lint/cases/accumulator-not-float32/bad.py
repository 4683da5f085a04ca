import triton
import triton.language as tl


@triton.jit
def matmul(a, b, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK, BLOCK), tl.bfloat16)
    for k in range(8):
        acc = tl.dot(a, b, acc)
    other = tl.dot(a, b, out_dtype=tl.float16)
    return acc + other
