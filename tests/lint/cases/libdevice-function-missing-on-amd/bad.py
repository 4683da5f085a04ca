import triton
import triton.language as tl

from triton.language.extra.cuda import libdevice


@triton.jit
def add(x, y):
    return libdevice.add_rn(x, y) + tl.extra.libdevice.normcdf(x)
