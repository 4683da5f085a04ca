"""Time one sample: with GPU events where there is a GPU, otherwise with the host's clock."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_MIN_SAMPLE_MS: Final = 1.0  # a call shorter than this is repeated until the sample is long enough
_MIN_CALL_MS: Final = 1e-6  # avoids a division by zero
_MAX_CALLS: Final = 256  # in a sample
# More than the last-level cache of any GPU. The L2 size that a GPU reports may be smaller than its last-level cache.
_FLUSH_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class Clock:
    """A way to time calls."""

    name: str
    sample: Callable[[Callable[[], Any], int], float]  # (call, times) -> milliseconds per call


def select_clock(*, cold: bool = False) -> Clock:
    """Return the clock for this machine; `cold` flushes the GPU's caches before every call."""
    if not has_device():
        return Clock("host", _host_sample)
    return Clock("device, cold", _cold_sample()) if cold else Clock("device", _device_sample)


def calls_per_sample(call: Callable[[], Any], warmups: int) -> int:
    """Return how many calls make one sample long enough to measure; first makes `warmups` calls.

    The number is a power of two. Otherwise one of two identical processes might use two calls and the other three, and the fixed
    cost of a sample would be divided by different numbers.
    """
    for _ in range(max(1, warmups)):
        call()
    call_ms = min(_host_sample(call, 1) for _ in range(2))
    return min(_MAX_CALLS, 1 << max(0, math.ceil(math.log2(_MIN_SAMPLE_MS / max(call_ms, _MIN_CALL_MS)))))


def pinnable_cores() -> list[int]:
    """Return the cores that a single-threaded measurement may be pinned to; empty when torch uses several threads."""
    import torch

    if torch.get_num_threads() > 1 or not hasattr(os, "sched_setaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


@contextmanager
def pinned_to_core(core: int | None) -> Iterator[None]:
    """Keep the thread on one core inside the block; None does not pin it."""
    if core is None:
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def has_device() -> bool:
    """Whether torch can use a GPU here."""
    import torch

    return bool(torch.cuda.is_available())


def _host_sample(call: Callable[[], Any], times: int) -> float:
    if has_device():
        import torch

        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        call()
    if has_device():
        torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3 / times


def _device_sample(call: Callable[[], Any], times: int) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / times


def _cold_sample() -> Callable[[Callable[[], Any], int], float]:
    import torch

    filler = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def sample(call: Callable[[], Any], times: int) -> float:
        total_ms = 0.0
        for _ in range(times):
            filler.zero_()
            total_ms += _device_sample(call, 1)
        return total_ms / times

    return sample
