import triton
import triton.language as tl


@triton.jit
def softmax(x, out):
    scores = tl.load(x)
    weights = tl.exp(scores)
    total = tl.sum(weights, axis=0)
    tl.store(out, weights / total)
