"""Find NVIDIA GPUs with NVML. This takes milliseconds and does not initialise CUDA, so that the process can still fork."""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from rocsolid.model.environment import Device
from rocsolid.model.platform import Platform

_LIBRARY: Final = "libnvidia-ml.so.1"
_MAX_NAME_BYTES: Final = 96


class _Memory(ctypes.Structure):
    """NVML's struct `nvmlMemory_t`: the memory of one device in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@cache
def nvml_devices(library: str = _LIBRARY) -> tuple[Device, ...]:
    """The GPUs that NVML lists; empty if the library is missing or too old, or if it finds no driver."""
    try:
        nvml = ctypes.CDLL(library)
        if nvml.nvmlInit_v2():
            return ()
        try:
            return tuple(_devices(nvml))
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return ()


def _devices(nvml: ctypes.CDLL) -> Iterator[Device]:
    driver = _read_text(nvml.nvmlSystemGetDriverVersion)
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return
    for index in range(count.value):
        handle, memory = ctypes.c_void_p(), _Memory()
        major, minor = ctypes.c_int(), ctypes.c_int()
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        if failed or nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)):
            continue
        # This call fails for GPUs that share the memory of the host; the size is then 0.
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        yield Device(
            index=index,
            name=_read_text(nvml.nvmlDeviceGetName, handle),
            arch=f"sm_{major.value}{minor.value}",
            memory_bytes=memory.total,
            platform=Platform.CUDA,
            driver=driver,
        )


def _read_text(call: Callable[..., int], *args: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(_MAX_NAME_BYTES)
    return "" if call(*args, text, ctypes.c_uint(_MAX_NAME_BYTES)) else text.value.decode("utf-8", "replace")
