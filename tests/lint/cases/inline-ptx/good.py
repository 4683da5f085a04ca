import triton
import triton.language as tl


@triton.jit
def clock(out):
    ticks = tl.inline_asm_elementwise("s_memtime $0", "=s", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(out, ticks)


@triton.jit
def tanh(x, IS_HIP: tl.constexpr):
    if not IS_HIP:
        x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    return x


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


if not is_hip():

    @triton.jit
    def tanh(x):
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _fast_exp(x):
    return tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


EXPS = {"cuda": _fast_exp, "hip": tl.exp2}
