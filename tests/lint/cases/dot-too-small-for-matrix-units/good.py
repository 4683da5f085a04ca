import triton
import triton.language as tl


@triton.jit
def matmul(a, b, out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    tl.store(out, tl.dot(tl.load(a), tl.load(b)))


@triton.jit
def copy(a, out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    tl.store(out, tl.load(a))


matmul[(1,)](a, b, out, BLOCK_M=16, BLOCK_N=128)
copy[(1,)](a, out, BLOCK_M=8, BLOCK_N=128)
