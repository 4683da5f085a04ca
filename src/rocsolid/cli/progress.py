"""Show the progress of a long command, and end it at its deadline."""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_EVERY_S: Final = 0.2
_PLAIN_EVERY_S: Final = 10.0
_GRACE_S: Final = 5.0  # after the deadline, faulthandler ends the process even if the GIL is held
_TIMED_OUT: Final = 124


@contextmanager
def progress(
    doing: Callable[[], str], *, deadline_s: float | None = None, stacks: Callable[[], str] = str
) -> Iterator[None]:
    """Show the text that `doing` returns while the block runs: one rewritten line on a terminal, else a line every 10 s.

    At the deadline, write that text and all stacks, and end the process with exit code 124.
    """
    over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(doing, over, deadline_s, stacks), name="rocsolid-progress", daemon=True
    )
    if deadline_s:
        faulthandler.dump_traceback_later(deadline_s + _GRACE_S, exit=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        if deadline_s:
            faulthandler.cancel_dump_traceback_later()


def _watch(
    doing: Callable[[], str], over: threading.Event, deadline_s: float | None, stacks: Callable[[], str]
) -> None:
    begun = time.monotonic()
    terminal = sys.stderr.isatty()
    written_at, width = begun, 0
    while not over.wait(_EVERY_S):
        now = time.monotonic()
        if deadline_s and now - begun > deadline_s:
            _end(
                f"error: the deadline of {deadline_s:g} s has passed; current step: {doing() or 'not compiling'}",
                stacks(),
            )
        text = doing() if terminal or now - written_at >= _PLAIN_EVERY_S else ""
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


def _end(message: str, stacks: str) -> None:
    sys.stderr.write(f"\nrocsolid: {message}\n{stacks}\n")
    sys.stderr.flush()
    os._exit(_TIMED_OUT)  # the hanging thread cannot raise an exception
