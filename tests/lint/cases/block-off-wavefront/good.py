import triton
import triton.language as tl


@triton.jit
def copy(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pass


copy[(1,)](x, BLOCK_M=16, BLOCK_N=16)
copy[(1,)](x, BLOCK_M=32, BLOCK_N=n)
other[(1,)](x, BLOCK=32)
