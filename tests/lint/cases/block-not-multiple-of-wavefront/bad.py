import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


@triton.jit
def copy(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offsets = tl.arange(0, BLOCK_M)[:, None] * 8 + tl.arange(0, BLOCK_N)[None, :]
    tl.store(x + offsets, tl.load(x + offsets))


copy[(1,)](x, BLOCK_M=4, BLOCK_N=8)
