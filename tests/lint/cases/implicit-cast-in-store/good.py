import triton
import triton.language as tl


@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    acc = tl.zeros([BLOCK], tl.float32)
    acc += tl.load(x)
    low = acc.to(tl.bfloat16)
    tl.store(out, low)
    tl.store(out, acc.to(out.dtype.element_ty))
    tl.store(out, tl.load(x))
