"""Watches compiles against a deadline: says what a slow one is doing, and ends it when its time is up.

A compile runs in the thread that called the function. To end it, an exception is raised there from outside: in the main thread
by a signal, which also interrupts a wait; in other threads by the interpreter, which acts when the thread next runs Python. What
is stuck in native code cannot be ended from inside its process: for that there is `in_child=True`.
"""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from rocsolid.runtime.background_thread import raise_in
from rocsolid.torchapi.dynamo.compile_hooks import Compile, CompileCalledOff
from rocsolid.torchapi.dynamo.compile_phase import all_stacks, phase_of

_log = logging.getLogger("rocsolid")
_SIGNAL: Final = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
_FIRST_WORD_S: Final = 5.0
_EVERY_S: Final = 10.0
_AGAIN_S: Final = 1.0  # code that swallows the exception gets it again


class _Watcher:
    """The thread that looks at the clock for one compile."""

    def __init__(self, compile_: Compile, limit_s: float) -> None:
        self._compile = compile_
        self._limit_s = limit_s
        self._over = threading.Event()
        self._lock = threading.Lock()  # held while raising, so that nothing is raised after the end
        threading.Thread(target=self._watch, name="rocsolid-deadline", daemon=True).start()

    def end(self) -> None:
        """Stop watching; an exception that is already on its way lands here and not in the user's code."""
        while True:
            try:
                with self._lock:
                    self._over.set()
                raise_in(self._compile.thread_id, None)
                time.sleep(0)
            except CompileCalledOff:
                continue
            return

    def _watch(self) -> None:
        limit_s, compile_ = self._limit_s, self._compile
        word_s = min(_FIRST_WORD_S, limit_s / 2)
        while not self._over.wait(max(0.0, min(word_s, limit_s) - _age(compile_))):
            if _age(compile_) >= limit_s:
                break
            doing = phase_of(compile_.thread_id)
            _log.warning("compiling %s for %.0f s of %g s: %s", compile_.name, _age(compile_), limit_s, doing)
            word_s = _age(compile_) + min(_EVERY_S, max(limit_s / 4, 1.0))
        if not self._over.is_set():
            _log.error(
                "the compile of %s passed its deadline of %g s while %s; it is called off. All stacks:\n%s",
                compile_.name,
                limit_s,
                phase_of(compile_.thread_id),
                all_stacks(),
            )
            compile_.called_off = True
        while not self._over.is_set():
            with self._lock:
                if not self._over.is_set():
                    _call_off(compile_.thread_id)
            self._over.wait(_AGAIN_S)


@contextmanager
def deadline(compile_: Compile, limit_s: float) -> Iterator[None]:
    """End the compile that runs in this block when it has taken `limit_s`."""
    with _interruptible():
        watcher = _Watcher(compile_, limit_s)
        try:
            yield
        finally:
            watcher.end()


def _age(compile_: Compile) -> float:
    return time.monotonic() - compile_.started


def _call_off(thread_id: int) -> None:
    if thread_id == threading.main_thread().ident:
        signal.pthread_kill(thread_id, _SIGNAL)
    else:
        raise_in(thread_id, CompileCalledOff)


@contextmanager
def _interruptible() -> Iterator[None]:
    """In the main thread, let our signal raise; the handler that was there is put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def call_off(_number: int, _frame: FrameType | None) -> None:
        raise CompileCalledOff

    before: Any = signal.signal(_SIGNAL, call_off)
    try:
        yield
    finally:
        signal.signal(_SIGNAL, before)
