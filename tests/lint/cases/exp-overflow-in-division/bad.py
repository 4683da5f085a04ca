import triton
import triton.language as tl


@triton.jit
def sigmoid(x, out):
    v = tl.load(x)
    tl.store(out, tl.exp(v) / (1 + tl.exp(v)))
