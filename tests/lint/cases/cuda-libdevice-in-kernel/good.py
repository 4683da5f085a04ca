import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as unused

try:
    from triton.language.extra.libdevice import rsqrt
except ModuleNotFoundError:
    from triton.language.extra.cuda.libdevice import rsqrt

if torch.version.hip is None:
    from triton.language.extra.cuda.libdevice import exp
else:
    from triton.language.extra.hip.libdevice import exp


@triton.jit
def activation(x, out):
    v = libdevice.tanh(tl.load(x))
    tl.store(out, rsqrt(v) + exp(v) + tl.extra.libdevice.sqrt(v))
