"""Make a child process end when its parent ends: without the parent, nothing would end it at its deadline."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # from <sys/prctl.h>


def parent_death_request() -> Callable[[], None]:
    """Return a function that makes the kernel kill this process when its parent ends. It is safe to call between fork and exec."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def request() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return request


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel kill this process as soon as its parent ends, for any reason. Does nothing outside Linux."""
    if sys.platform != "linux":
        return
    parent_death_request()()
    if os.getppid() != parent_pid:  # the parent ended before the request
        os._exit(1)
