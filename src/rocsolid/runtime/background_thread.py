"""Background threads that end before the interpreter does.

A daemon thread that calls torch during interpreter shutdown crashes the process: Python ends the thread when it next takes the
interpreter lock, and in C++ that is an uncaught exception (`terminate called without an active exception`). With a non-daemon thread,
the program would not end before the thread's work is done. So when the program ends, SystemExit is raised in each thread at its next
Python instruction, and the thread is joined. A thread that is stuck in native code is abandoned after ten seconds.
"""

import atexit
import ctypes
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import FrameType
from typing import Any, Final

_STOP_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 1.0  # then raise the exception again, because code in the thread may have caught it
_SWITCH_INTERVAL_S: Final = 50e-6
_considerate_lock = threading.Lock()
_intervals: list[float] = []  # before each of the threads that are in `considerate_thread`
_threads: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def run_in_background(work: Callable[[], object], name: str) -> threading.Thread:
    """Start the work in a thread that is stopped when the program ends."""
    _stop_at_exit()
    thread = threading.Thread(target=work, name=f"rocsolid-{name}", daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


@contextmanager
def considerate_thread() -> Iterator[None]:
    """Run the block without slowing down other threads much.

    Python switches to another thread after 50 µs instead of 5 ms: torch gives up the interpreter lock in every operator, and a thread
    that runs a model would wait 5 ms for it each time. The priority stays: a thread of low priority would hold the lock for longer.
    """
    with _considerate_lock:
        _intervals.append(sys.getswitchinterval())
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        with _considerate_lock:
            before = _intervals.pop()
            if not _intervals:  # the last of these threads
                sys.setswitchinterval(before)


def raise_in_thread(thread_id: int, exception_type: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next Python instruction; with None, cancel an exception that was not raised yet.

    Nothing is raised while the thread writes to a log: call it again later.
    """
    if exception_type is not None and is_logging(sys._current_frames().get(thread_id)):  # noqa: SLF001 - documented
        return
    exception = None if exception_type is None else ctypes.py_object(exception_type)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exception)
    if exception_type is None:
        clear_exception_flag()


def is_logging(frame: FrameType | None) -> bool:
    """Return whether a frame is inside `logging`: an exception there could leave its lock locked, and every thread would wait for it."""
    while frame is not None:
        if frame.f_code.co_filename == logging.__file__:
            return True
        frame = frame.f_back
    return False


class _Nothing(BaseException):
    """Raised in the own thread, and caught at once."""


def clear_exception_flag() -> None:
    """Make Python forget that an exception is to be raised in some thread.

    Python keeps one flag for all threads, and clears it only when it raises such an exception. While it is set, Python 3.11 hangs in the
    first call of a thread with a profile function. Other versions do not.
    """
    if sys.version_info[:2] != (3, 11):
        return
    try:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(_Nothing))
        while True:
            pass
    except _Nothing:
        return
    except BaseException:  # of a signal handler, which came first
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
        raise


@cache
def _stop_at_exit() -> None:
    # Exit handlers run in reverse order. This one is registered at first use and not at import, so that it runs before the handler that
    # kills child processes. Otherwise a thread that waits for a child process would report that the child crashed.
    atexit.register(_stop_threads)


def _stop_threads() -> None:
    sys.unraisablehook = partial(_hide_system_exit, sys.unraisablehook)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    for thread in tuple(_threads):
        while thread.is_alive() and thread.ident is not None and time.monotonic() < deadline:
            # SystemExit: no `except Exception` catches it, and a thread that ends with it prints nothing.
            raise_in_thread(thread.ident, SystemExit)
            thread.join(_RETRY_S)


def _hide_system_exit(previous_hook: Callable[[Any], object], unraisable: Any) -> None:
    """Hide our SystemExit when it is raised inside a finalizer, where Python would print it."""
    if unraisable.exc_type is not SystemExit:
        previous_hook(unraisable)
