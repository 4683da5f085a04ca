import triton
import triton.language as tl


@triton.jit
def clock(out):
    ticks = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(out, ticks)
