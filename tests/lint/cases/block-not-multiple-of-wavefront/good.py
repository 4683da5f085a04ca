import triton
import triton.language as tl


@triton.jit
def copy(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offsets = tl.arange(0, BLOCK_M)[:, None] * 8 + tl.arange(0, BLOCK_N)[None, :]
    tl.store(x + offsets, tl.load(x + offsets))


@triton.jit
def rows(x, DIM: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * DIM + tl.arange(0, DIM)[None, :]
    tl.store(x + offsets, tl.load(x + offsets))


copy[(1,)](x, BLOCK_M=16, BLOCK_N=16)
copy[(1,)](x, BLOCK_M=32, BLOCK_N=n)
rows[(1,)](x, DIM=128, BLOCK=16)
other[(1,)](x, BLOCK=32)
