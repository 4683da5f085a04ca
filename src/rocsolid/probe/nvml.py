"""NVIDIA's chips, asked of its management library: in milliseconds, and without starting CUDA, after which no process may fork."""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from rocsolid.model.environment import Device
from rocsolid.model.platform import Platform

_LIBRARY: Final = "libnvidia-ml.so.1"
_LONGEST: Final = 96  # bytes of a name


class _Memory(ctypes.Structure):
    """How much a device has, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@cache
def nvidia_chips(library: str = _LIBRARY) -> tuple[Device, ...]:
    """Every chip that answers; none where the library is missing, too old, or finds no driver."""
    try:
        asked = ctypes.CDLL(library)
        if asked.nvmlInit_v2():
            return ()
        try:
            return tuple(_chips(asked))
        finally:
            asked.nvmlShutdown()
    except (OSError, AttributeError):
        return ()


def _chips(asked: ctypes.CDLL) -> Iterator[Device]:
    driver = _text(asked.nvmlSystemGetDriverVersion)
    count = ctypes.c_uint()
    if asked.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return
    for index in range(count.value):
        chip, memory = ctypes.c_void_p(), _Memory()
        major, minor = ctypes.c_int(), ctypes.c_int()
        lost = asked.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(chip))
        if lost or asked.nvmlDeviceGetCudaComputeCapability(chip, ctypes.byref(major), ctypes.byref(minor)):
            continue
        # Refused by chips that share the host's memory: then it is 0.
        asked.nvmlDeviceGetMemoryInfo(chip, ctypes.byref(memory))
        yield Device(
            index=index,
            name=_text(asked.nvmlDeviceGetName, chip),
            arch=f"sm_{major.value}{minor.value}",
            memory_bytes=memory.total,
            platform=Platform.CUDA,
            driver=driver,
        )


def _text(call: Callable[..., int], *about: ctypes.c_void_p) -> str:
    answer = ctypes.create_string_buffer(_LONGEST)
    return "" if call(*about, answer, ctypes.c_uint(_LONGEST)) else answer.value.decode("utf-8", "replace")
