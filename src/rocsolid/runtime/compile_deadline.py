"""Ends compiles that exceed their deadline, and logs the progress of slow compiles.

A compile runs in the thread that called the function. To end it, another thread raises an exception there. In the main thread this is
done with a signal, which also interrupts a blocking system call. In other threads Python raises it at the thread's next Python
instruction. A compile that is stuck in native code cannot be ended from inside its process; `in_child=True` covers that case.
"""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from rocsolid.model.log import log as _log
from rocsolid.runtime.background_thread import is_logging, raise_in_thread
from rocsolid.torchapi.dynamo.compile_hooks import Compile, CompileCancelled
from rocsolid.torchapi.dynamo.compile_phase import all_stacks, phase_of, thread_stack

_SIGNAL: Final = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
_FIRST_PROGRESS_S: Final = 5.0
_PROGRESS_EVERY_S: Final = 10.0
_RETRY_S: Final = 1.0  # then raise the exception again, because code in the compile may have caught it


class _Watcher:
    """A thread that checks how long one compile has been running, and cancels it at the deadline."""

    def __init__(self, compile_: Compile, limit_s: float) -> None:
        self._compile = compile_
        self._limit_s = limit_s
        self._ended = threading.Event()
        self.left = False  # the compile has ended; set even where an exception keeps `end` from running
        self._lock = threading.Lock()  # held while an exception is raised, so that none is raised after `end`
        threading.Thread(target=self._watch, name="rocsolid-deadline", daemon=True).start()

    def end(self) -> None:
        """Stop watching. An exception that is on its way to this thread is caught here and does not reach the user's code."""
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
        next_log_s = min(_FIRST_PROGRESS_S, limit_s / 2)
        while not self._ended.wait(max(0.0, min(next_log_s, limit_s) - _elapsed_s(compile_))):
            if _elapsed_s(compile_) >= limit_s:
                break
            _log.log(
                logging.INFO if _elapsed_s(compile_) < limit_s / 2 else logging.WARNING,
                "compiling %s: running for %.0f s (deadline %g s), phase: %s",
                compile_.name,
                _elapsed_s(compile_),
                limit_s,
                phase_of(compile_.thread_id),
            )
            next_log_s = _elapsed_s(compile_) + min(_PROGRESS_EVERY_S, max(limit_s / 4, 1.0))
        if not self._ended.is_set():
            phase = phase_of(compile_.thread_id)
            compile_.cancel_reason = f"after its deadline of {limit_s:g} s, while {phase}"
            _log.error(
                "%s: compile cancelled %s.%s\n  fix: %s\n  stack of the compile, innermost call last:\n%s",
                compile_.name,
                compile_.cancel_reason,
                "" if compile_.full_graph else " It runs in eager from now on.",
                _fix(phase),
                thread_stack(compile_.thread_id),
            )
            _log.debug("stacks of all threads:\n%s", all_stacks())
        while not self._ended.is_set() and not self.left:
            with self._lock:
                if not self._ended.is_set() and not self.left:
                    _cancel(compile_.thread_id)
            self._ended.wait(_RETRY_S)


@contextmanager
def deadline(compile_: Compile, limit_s: float) -> Iterator[None]:
    """Cancel the compile that runs in this block if it takes longer than `limit_s`."""
    with _cancel_signal_handler():
        watcher = _Watcher(compile_, limit_s)
        try:
            yield
        finally:
            watcher.left = True
            watcher.end()


def _fix(phase: str) -> str:
    """Return what the user can change, depending on the phase in which the compile was cancelled."""
    if "autotun" in phase:
        return 'use mode="default" instead of "max-autotune", or raise the deadline'
    return "raise the deadline (deadline_s=, --deadline), or test with rs.compile(..., in_child=True) whether it hangs"


def _elapsed_s(compile_: Compile) -> float:
    return time.monotonic() - compile_.started


def _cancel(thread_id: int) -> None:
    if thread_id == threading.main_thread().ident:
        signal.pthread_kill(thread_id, _SIGNAL)
    else:
        raise_in_thread(thread_id, CompileCancelled)


@contextmanager
def _cancel_signal_handler() -> Iterator[None]:
    """In the main thread, raise CompileCancelled when our signal arrives; restore the previous handler after the block.

    Where there was none, the signal is ignored from then on: one that arrives late would end the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(_signal_number: int, frame: FrameType | None) -> None:
        if not is_logging(frame):  # the watcher sends the signal again
            raise CompileCancelled

    previous_handler: Any = signal.signal(_SIGNAL, cancel)
    try:
        yield
    finally:
        signal.signal(_SIGNAL, signal.SIG_IGN if previous_handler in (signal.SIG_DFL, None) else previous_handler)
