"""A child process that dies with its parent: without the parent nothing would end it at its deadline."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def parent_death_request() -> Callable[[], None]:
    """A function that asks the kernel to kill this process when its parent dies. Safe to call between fork and exec."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def request() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return request


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process as soon as its parent dies, for whatever reason. Does nothing outside Linux."""
    if sys.platform != "linux":
        return
    parent_death_request()()
    if os.getppid() != parent_pid:  # the parent died before the request
        os._exit(1)
