import triton
import triton.language as tl


@triton.jit
def clock(out):
    ticks = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(out, ticks)


_TANH = """
    tanh.approx.f32 $0, $1;
"""
TANH: tl.constexpr = tl.constexpr(_TANH)


@triton.jit
def tanh(x):
    return tl.inline_asm_elementwise(TANH, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
