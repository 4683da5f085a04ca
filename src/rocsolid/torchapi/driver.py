"""The device's own library, called past torch: for what torch does not offer, or offers at a price.

Nothing here is needed: where the library or a call is missing, the answer is None, and there is another way.
"""

import contextlib
import ctypes
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, Final

_COPY_MANY: Final = "rocsolid_copy_many"


@cache
def library() -> ctypes.CDLL | None:
    """CUDA's driver, or HIP."""
    import torch

    names = ("libamdhip64.so",) if torch.version.hip is not None else ("libcuda.so.1", "libcuda.so")
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def call_named(name: str) -> Any:
    """One of its calls by the name without prefix; None where it has no such call."""
    import torch

    prefix = "hip" if torch.version.hip is not None else "cu"
    return getattr(library(), prefix + name, None)


@cache
def copy_kernel(device: int) -> ctypes.c_void_p | None:
    """The kernel that copies many tensors at once, loaded on a CUDA device; None where it cannot be."""
    import torch

    load, find = call_named("ModuleLoadData"), call_named("ModuleGetFunction")
    if torch.version.hip is not None or load is None or find is None:
        return None
    text = resources.files("rocsolid.torchapi").joinpath("copy_many.ptx").read_bytes()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # which makes the device's context the current one
        if load(ctypes.byref(module), text + b"\0") or find(ctypes.byref(function), module, _COPY_MANY.encode()):
            return None
    return function


def launcher(function: ctypes.c_void_p, grid: tuple[int, int], threads: int, packed: Any) -> Callable[[int], int]:
    """A function that launches a kernel on a stream, its arguments being what the buffer holds then; 0 when it went well."""
    size = ctypes.c_size_t(ctypes.sizeof(packed))
    begin, length, end = 1, 2, 0  # how CUDA tells apart what follows
    extra = (ctypes.c_void_p * 5)(begin, ctypes.addressof(packed), length, ctypes.addressof(size), end)
    launch = call_named("LaunchKernel")
    sizes = [ctypes.c_uint(number) for number in (*grid, 1, threads, 1, 1, 0)]
    stream_type, nothing = ctypes.c_void_p, ctypes.c_void_p(None)

    def go(stream: int, _alive: Any = (packed, size)) -> int:
        failed: int = launch(function, *sizes, stream_type(stream), nothing, extra)
        return failed

    return go
