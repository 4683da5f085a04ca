"""How long one sample takes: by the device's own clock where there is a device, else by the host's."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_LONG_MS: Final = 1.0  # a sample shorter than this is made of several calls
_MOST_CALLS: Final = 256
_FLUSH_BYTES: Final = (
    256 << 20
)  # more than any device's last-level cache; what a device reports as its L2 may be a fraction


@dataclass(frozen=True)
class Clock:
    """A way to time calls."""

    name: str
    sample: Callable[[Callable[[], Any], int], float]  # milliseconds a call


def clock_here(*, cold: bool = False) -> Clock:
    """The clock of this machine; `cold` empties the device's caches before every call."""
    if not on_device():
        return Clock("host", _host_sample)
    return Clock("device, cold", _cold_sample()) if cold else Clock("device", _device_sample)


def calls_per_sample(call: Callable[[], Any], warmups: int) -> int:
    """How many calls make a sample long enough to be measured, after some that warm it up.

    A power of two: of two processes that run the same, one would otherwise take two calls and the other three, and what a sample
    costs besides would be shared among more.
    """
    for _ in range(max(1, warmups)):
        call()
    spent = min(_host_sample(call, 1) for _ in range(2))
    return min(_MOST_CALLS, 1 << max(0, math.ceil(math.log2(_LONG_MS / max(spent, 1e-6)))))


def cores_here() -> list[int]:
    """The cores that a single thread may be moved among; none where threads share the work."""
    import torch

    if torch.get_num_threads() > 1 or not hasattr(os, "sched_setaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """The thread stays on one core meanwhile; None: where it likes."""
    if core is None:
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def on_device() -> bool:
    """Whether torch sees a device here."""
    import torch

    return bool(torch.cuda.is_available())


def _host_sample(call: Callable[[], Any], times: int) -> float:
    if on_device():
        import torch

        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        call()
    if on_device():
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e3 / times


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
        spent = 0.0
        for _ in range(times):
            filler.zero_()
            spent += _device_sample(call, 1)
        return spent / times

    return sample
