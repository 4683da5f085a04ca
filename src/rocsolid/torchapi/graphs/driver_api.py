"""The device's own library, called past torch: for what torch does not offer, or offers at a price.

Nothing here is needed: where the library or a call is missing, the answer is None, and there is another way.
"""

import contextlib
import ctypes
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any


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


def new_stream(device: int) -> Any:
    """A stream that no other has to do with: torch's own are thirty-two in number and are handed out again after that."""
    import torch

    create, made = call_named("StreamCreate"), ctypes.c_void_p()
    with torch.cuda.device(device):
        _make_current()
        beside_the_default = 1
        if torch.version.hip is not None or create is None or create(ctypes.byref(made), beside_the_default):
            return torch.cuda.Stream()
        return torch.cuda.ExternalStream(made.value)


def _make_current() -> None:
    """Let the thread's device be the one that the library works on: torch does so when it first needs it."""
    import torch

    torch.cuda.current_stream().synchronize()


@cache
def copy_kernel(device: int, most: int) -> ctypes.c_void_p | None:
    """The kernel that copies up to so many tensors at once, loaded on a CUDA device; None where it cannot be."""
    import torch

    load, find = call_named("ModuleLoadData"), call_named("ModuleGetFunction")
    if torch.version.hip is not None or None in (load, find, call_named("LaunchKernelEx")):
        return None
    text = resources.files("rocsolid.torchapi.graphs").joinpath("copy_many.ptx").read_bytes()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        _make_current()
        failed = load(ctypes.byref(module), text + b"\0")
        if failed or find(ctypes.byref(function), module, f"rocsolid_copy_{most}".encode()):
            return None
    return function


class _Launch(ctypes.Structure):
    """Where and how a kernel is launched, as CUDA's driver is told it."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


def launcher(function: ctypes.c_void_p, grid: tuple[int, int], threads: int, packed: Any) -> Callable[[int], int]:
    """A function that launches a kernel on a stream, its arguments being what the buffer holds then; 0 when it went well.

    Everything but the stream is made ready here: what is left costs the host little more than the launch itself.
    """
    size = ctypes.c_size_t(ctypes.sizeof(packed))
    begin, length, end = 1, 2, 0  # how CUDA tells apart what follows
    extra = (ctypes.c_void_p * 5)(begin, ctypes.addressof(packed), length, ctypes.addressof(size), end)
    plan = _Launch(grid_x=grid[0], grid_y=grid[1], grid_z=1, block_x=threads, block_y=1, block_z=1)
    launch, nothing = call_named("LaunchKernelEx"), ctypes.c_void_p(None)
    where = ctypes.byref(plan)
    current = 0

    def go(stream: int, _alive: Any = (packed, size)) -> int:
        nonlocal current
        if stream != current:
            plan.stream = current = stream
        failed: int = launch(where, function, nothing, extra)
        return failed

    return go
