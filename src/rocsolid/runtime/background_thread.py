"""Threads that work beside the program, and are over before the interpreter is.

A daemon thread that calls torch while the interpreter ends takes the process down with it: it is made to leave when it next asks for
the interpreter, and C++ takes that for an exception nobody catches (`terminate called without an active exception`). A thread that
is no daemon would keep the program waiting until its work is done. So when the program ends, the work is broken off where it next
runs Python, and waited for; what is stuck in native code for longer than that is left to its fate.
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
_AGAIN_S: Final = 1.0  # code that swallows the exception gets it again
_working: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def beside(work: Callable[[], object], name: str) -> threading.Thread:
    """Begin the work in a thread of its own."""
    _break_off_at_exit()
    thread = threading.Thread(target=work, name=f"rocsolid-{name}", daemon=True)
    _working.add(thread)
    thread.start()
    return thread


def raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    """Have the interpreter raise this in a thread when that next runs Python; with None, what was to be raised is not."""
    exception = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exception)


@cache
def _break_off_at_exit() -> None:
    # Not when this module is imported: what is registered last comes first, and so the work is broken off before the children
    # that it waits for are ended, which it would report as a crash of theirs.
    atexit.register(_break_off)


def _break_off() -> None:
    sys.unraisablehook = partial(_but_for_the_end, sys.unraisablehook)
    until = time.monotonic() + _GRACE_S
    for thread in tuple(_working):
        while thread.is_alive() and thread.ident is not None and time.monotonic() < until:
            # No handler of errors takes it for one, and a thread dies of it in silence.
            raise_in(thread.ident, SystemExit)
            thread.join(_AGAIN_S)


def _but_for_the_end(before: Callable[[Any], object], lost: Any) -> None:
    """Where it is raised in a finalizer the interpreter would tell the user, who has nothing to do with it."""
    if lost.exc_type is not SystemExit:
        before(lost)
