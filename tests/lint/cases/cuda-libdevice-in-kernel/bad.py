import triton
import triton.language as tl
import triton.language.extra.cuda.libdevice as ld
from triton.language.extra.cuda import globaltimer, libdevice
from triton.language.extra.cuda.libdevice import rsqrt, tanh


@triton.jit
def activation(x, out):
    v = libdevice.tanh(tl.load(x)) + tanh(tl.load(x)) + ld.exp(tl.load(x))
    tl.store(out, v * rsqrt(v) + tl.extra.cuda.libdevice.sqrt(v))


def now():
    return globaltimer()
