"""Direct calls of the CUDA driver or HIP, for what torch does not offer or offers too slowly.

Nothing here is required: where the library or a call is missing, the functions return None and the caller uses torch.
"""

import contextlib
import ctypes
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from rocsolid.torchapi.private_api import private_name

RAW_STREAM = private_name(
    "torch._C",
    "_cuda_getCurrentRawStream",
    "2.3..",
    gpu_builds_only=True,
    without="rs.capture: the current stream is read with torch.cuda.current_stream(), so a replay costs more CPU time",
)


@cache
def library() -> ctypes.CDLL | None:
    """Return the library of the CUDA driver or of HIP; None where it cannot be loaded."""
    import torch

    names = ("libamdhip64.so",) if torch.version.hip is not None else ("libcuda.so.1", "libcuda.so")
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def driver_function(name: str) -> Any:
    """Return a function of the library, by its name without prefix (`StreamCreate`); None where it does not exist."""
    import torch

    prefix = "hip" if torch.version.hip is not None else "cu"
    return getattr(library(), prefix + name, None)


def current_stream_handle() -> Callable[[int], int]:
    """Return a function that returns the raw handle of a device's current stream, without creating a Stream object."""
    handle: Callable[[int], int] = RAW_STREAM.find() or _public_stream_handle
    return handle


def _public_stream_handle(device: int) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


def new_stream(device: int) -> Any:
    """Return a stream that nothing else uses: torch has 32 streams per device, and returns the same ones again after that."""
    import torch

    create, handle = driver_function("StreamCreate"), ctypes.c_void_p()
    with torch.cuda.device(device):
        _make_context_current()
        non_blocking = 1
        if torch.version.hip is not None or create is None or create(ctypes.byref(handle), non_blocking):
            return torch.cuda.Stream()
        return torch.cuda.ExternalStream(handle.value)


def _make_context_current() -> None:
    """Make our direct driver calls use torch's current device.

    After `torch.cuda.device(...)` the driver may still use another device: torch switches it only when torch itself calls the driver,
    as this synchronization does.
    """
    import torch

    torch.cuda.current_stream().synchronize()


@cache
def copy_kernel(device: int, max_tensors: int) -> ctypes.c_void_p | None:
    """Load the kernel that copies up to `max_tensors` tensors on a CUDA device; None where it cannot be loaded."""
    import torch

    load, find = driver_function("ModuleLoadData"), driver_function("ModuleGetFunction")
    if torch.version.hip is not None or None in (load, find, driver_function("LaunchKernelEx")):
        return None
    ptx = resources.files("rocsolid.torchapi.graphs").joinpath("copy_many.ptx").read_bytes()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        _make_context_current()
        failed = load(ctypes.byref(module), ptx + b"\0")
        if failed or find(ctypes.byref(function), module, f"rocsolid_copy_{max_tensors}".encode()):
            return None
    return function


class _LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig` of the CUDA driver."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


def make_launch(function: ctypes.c_void_p, grid: tuple[int, int], threads: int, packed: Any) -> Callable[[int], int]:
    """Return a function that launches a kernel on a stream and returns the error code, 0 on success.

    The kernel's arguments are what the buffer `packed` contains at the time of the launch. Everything but the stream is prepared
    here, so a call costs little more than the launch itself.
    """
    size = ctypes.c_size_t(ctypes.sizeof(packed))
    buffer_pointer, buffer_size, end = 1, 2, 0  # CU_LAUNCH_PARAM_*
    extra = (ctypes.c_void_p * 5)(buffer_pointer, ctypes.addressof(packed), buffer_size, ctypes.addressof(size), end)
    config = _LaunchConfig(grid_x=grid[0], grid_y=grid[1], grid_z=1, block_x=threads, block_y=1, block_z=1)
    launch, no_arguments = driver_function("LaunchKernelEx"), ctypes.c_void_p(None)
    config_pointer = ctypes.byref(config)
    last_stream = 0

    def launch_on(stream: int, _alive: Any = (packed, size)) -> int:
        nonlocal last_stream
        if stream != last_stream:
            config.stream = last_stream = stream
        error: int = launch(config_pointer, function, no_arguments, extra)
        return error

    return launch_on
