import triton
import triton.language as tl


@triton.jit
def softmax(x, out):
    scores = tl.load(x)
    scores = scores - tl.max(scores, axis=0)
    weights = tl.exp(scores)
    total = tl.sum(weights, axis=0)
    tl.store(out, weights / total)
