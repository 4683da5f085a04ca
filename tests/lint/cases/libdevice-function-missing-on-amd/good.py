import triton
import triton.language as tl

from triton.language.extra import libdevice


@triton.jit
def tanh(x):
    return libdevice.tanh(x)


def remainder(x, y):
    return mine.remainder(x, y)
