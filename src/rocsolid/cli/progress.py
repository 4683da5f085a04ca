"""Show the progress of a long command, and end it at its deadline."""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_TERMINAL_INTERVAL_S: Final = 0.2
_LOG_INTERVAL_S: Final = 10.0  # where stderr is not a terminal
_GRACE_S: Final = 5.0  # this long after the deadline, faulthandler ends the process even if the GIL is held
_TIMED_OUT: Final = 124  # the exit code


@contextmanager
def progress(
    current_step: Callable[[], str], *, deadline_s: float | None = None, stacks: Callable[[], str] = str
) -> Iterator[None]:
    """Show the text that `current_step` returns while the block runs.

    On a terminal one line is rewritten; elsewhere a line is printed every 10 s. At the deadline, the text and the stacks
    are printed and the process ends with exit code 124.
    """
    ended = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(current_step, ended, deadline_s, stacks), name="rocsolid-progress", daemon=True
    )
    if deadline_s:
        faulthandler.dump_traceback_later(deadline_s + _GRACE_S, exit=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        if deadline_s:
            faulthandler.cancel_dump_traceback_later()


def _watch(
    current_step: Callable[[], str], ended: threading.Event, deadline_s: float | None, stacks: Callable[[], str]
) -> None:
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    written_at, width = started, 0
    while not ended.wait(_TERMINAL_INTERVAL_S):
        now = time.monotonic()
        if deadline_s and now - started > deadline_s:
            _end_process(
                f"error: the deadline of {deadline_s:g} s was exceeded; current step: {current_step() or 'not compiling'}",
                stacks(),
            )
        text = current_step() if terminal or now - written_at >= _LOG_INTERVAL_S else ""
        if text and terminal:
            text = text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
            sys.stderr.write(f"\r{text:<{width}}")
            sys.stderr.flush()
            width = len(text)
        elif text:
            sys.stderr.write(f"{text}\n")
            written_at = now
    if terminal and width:
        sys.stderr.write(f"\r{'':<{width}}\r")


def _end_process(message: str, stacks: str) -> None:
    sys.stderr.write(f"\nrocsolid: {message}\n{stacks}\n")
    sys.stderr.flush()
    os._exit(_TIMED_OUT)  # the hanging thread cannot raise an exception
