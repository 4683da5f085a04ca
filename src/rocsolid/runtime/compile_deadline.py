"""Ends compiles that pass a deadline, and logs the progress of slow ones.

A compile runs in the thread that called the function. To end it, an exception is raised in that thread from outside: in the main
thread by a signal, which also interrupts a blocking wait; in other threads by the interpreter, at the thread's next Python
instruction. A compile that is stuck in native code cannot be ended from inside its process: use `in_child=True` for that.
"""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from rocsolid.runtime.background_thread import raise_in_thread
from rocsolid.torchapi.dynamo.compile_hooks import Compile, CompileCancelled
from rocsolid.torchapi.dynamo.compile_phase import all_stacks, phase_of

_log = logging.getLogger("rocsolid")
_SIGNAL: Final = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
_FIRST_PROGRESS_S: Final = 5.0
_PROGRESS_EVERY_S: Final = 10.0
_RETRY_S: Final = 1.0  # raise again: code may have swallowed the exception


class _Watcher:
    """A thread that checks the elapsed time of one compile."""

    def __init__(self, compile_: Compile, limit_s: float) -> None:
        self._compile = compile_
        self._limit_s = limit_s
        self._ended = threading.Event()
        self._lock = threading.Lock()  # held while raising, so that nothing is raised after the end
        threading.Thread(target=self._watch, name="rocsolid-deadline", daemon=True).start()

    def end(self) -> None:
        """Stop watching; an exception that was already sent is caught here and does not reach the user's code."""
        while True:
            try:
                with self._lock:
                    self._ended.set()
                raise_in_thread(self._compile.thread_id, None)
                time.sleep(0)
            except CompileCancelled:
                continue
            return

    def _watch(self) -> None:
        limit_s, compile_ = self._limit_s, self._compile
        progress_s = min(_FIRST_PROGRESS_S, limit_s / 2)
        while not self._ended.wait(max(0.0, min(progress_s, limit_s) - _age_s(compile_))):
            if _age_s(compile_) >= limit_s:
                break
            _log.warning(
                "compiling %s: %.0f s of %g s, %s",
                compile_.name,
                _age_s(compile_),
                limit_s,
                phase_of(compile_.thread_id),
            )
            progress_s = _age_s(compile_) + min(_PROGRESS_EVERY_S, max(limit_s / 4, 1.0))
        if not self._ended.is_set():
            phase = phase_of(compile_.thread_id)
            compile_.cancelled = f"after its deadline of {limit_s:g} s, while {phase}"
            _log.error(
                "%s: compile cancelled %s.%s\n  fix: %s\n  stacks of all threads:\n%s",
                compile_.name,
                compile_.cancelled,
                "" if compile_.full_graph else " It runs in eager from now on.",
                _fix(phase),
                all_stacks(),
            )
        while not self._ended.is_set():
            with self._lock:
                if not self._ended.is_set():
                    _cancel(compile_.thread_id)
            self._ended.wait(_RETRY_S)


@contextmanager
def deadline(compile_: Compile, limit_s: float) -> Iterator[None]:
    """End the compile that runs in this block after `limit_s`."""
    with _interruptible():
        watcher = _Watcher(compile_, limit_s)
        try:
            yield
        finally:
            watcher.end()


def _fix(phase: str) -> str:
    """What to change, by what the compile was doing."""
    if "autotun" in phase:
        return 'use mode="default" instead of "max-autotune", or raise the deadline'
    return "raise the deadline (deadline_s=, --deadline), or test with rs.compile(..., in_child=True) whether it hangs"


def _age_s(compile_: Compile) -> float:
    return time.monotonic() - compile_.started


def _cancel(thread_id: int) -> None:
    if thread_id == threading.main_thread().ident:
        signal.pthread_kill(thread_id, _SIGNAL)
    else:
        raise_in_thread(thread_id, CompileCancelled)


@contextmanager
def _interruptible() -> Iterator[None]:
    """In the main thread, install a handler that raises on our signal; the previous handler is restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(_number: int, _frame: FrameType | None) -> None:
        raise CompileCancelled

    before: Any = signal.signal(_SIGNAL, cancel)
    try:
        yield
    finally:
        signal.signal(_SIGNAL, before)
