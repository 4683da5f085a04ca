import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    pass


@triton.jit
def copy(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pass


copy[(1,)](x, BLOCK_M=4, BLOCK_N=8)
