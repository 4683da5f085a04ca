"""Background threads that end before the interpreter does.

A daemon thread that calls torch during interpreter shutdown crashes the process: Python ends the thread when it next takes the
interpreter lock, and C++ sees that as an uncaught exception (`terminate called without an active exception`). A non-daemon thread
would make the program wait until its work is done. So when the program ends, each thread gets a SystemExit at its next Python
instruction, and is joined. A thread that is stuck in native code is abandoned after a grace period.
"""

import atexit
import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

_GRACE_S: Final = 10.0
_RETRY_S: Final = 1.0  # raise again: code may have swallowed the exception
_threads: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def run_in_background(work: Callable[[], object], name: str) -> threading.Thread:
    """Start the work in a thread that is stopped when the program ends."""
    _stop_at_exit()
    thread = threading.Thread(target=work, name=f"rocsolid-{name}", daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


def raise_in_thread(thread_id: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next Python instruction; None cancels one that was not raised yet."""
    exception = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exception)


@cache
def _stop_at_exit() -> None:
    # Registered at first use and not at import: exit handlers run in reverse order, so the threads stop before the child processes
    # that they wait for are killed. Otherwise they would report a crashed child.
    atexit.register(_stop_threads)


def _stop_threads() -> None:
    sys.unraisablehook = partial(_hide_system_exit, sys.unraisablehook)
    deadline = time.monotonic() + _GRACE_S
    for thread in tuple(_threads):
        while thread.is_alive() and thread.ident is not None and time.monotonic() < deadline:
            # SystemExit: no `except Exception` catches it, and a thread that ends with it prints nothing.
            raise_in_thread(thread.ident, SystemExit)
            thread.join(_RETRY_S)


def _hide_system_exit(hook: Callable[[Any], object], unraisable: Any) -> None:
    """Hide our SystemExit when it is raised inside a finalizer, where Python would print it."""
    if unraisable.exc_type is not SystemExit:
        hook(unraisable)
