"""Shows a person who waits that something is happening, and ends what takes too long."""

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
_GRACE_S: Final = 5.0  # a watchdog in C, for what holds the interpreter's lock
_TIMED_OUT: Final = 124


@contextmanager
def progress(
    doing: Callable[[], str], *, deadline_s: float | None = None, stacks: Callable[[], str] = str
) -> Iterator[None]:
    """While the block runs, show what `doing` says: one line rewritten on a terminal, a line every ten seconds elsewhere.

    When the deadline passes, what it was doing and all stacks are written and the process ends with 124.
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
    said_at, width = begun, 0
    while not over.wait(_EVERY_S):
        now = time.monotonic()
        if deadline_s and now - begun > deadline_s:
            _end(f"passed the deadline of {deadline_s:g} s; it was at: {doing() or 'nothing that compiles'}", stacks())
        text = doing() if terminal or now - said_at >= _PLAIN_EVERY_S else ""
        if text and terminal:
            text = text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
            sys.stderr.write(f"\r{text:<{width}}")
            sys.stderr.flush()
            width = len(text)
        elif text:
            sys.stderr.write(f"{text}\n")
            said_at = now
    if terminal and width:
        sys.stderr.write(f"\r{'':<{width}}\r")


def _end(said: str, stacks: str) -> None:
    sys.stderr.write(f"\nrocsolid: {said}\n{stacks}\n")
    sys.stderr.flush()
    os._exit(_TIMED_OUT)  # the thread that hangs will not come back to raise anything
