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


def _generate(count):
    return "".join("ex2.approx.f32 ${out}, ${out};".format(out=i) for i in range(count))


EXP: tl.constexpr = tl.constexpr(_generate(2))


@triton.jit
def exp(x):
    return tl.inline_asm_elementwise(asm=EXP, constraints="=f,f", args=[x], dtype=tl.float32, is_pure=True, pack=1)
