"""Show the progress of a long call on stderr, and end a command at its deadline.

On a terminal one line with a bar is rewritten; elsewhere a plain line is printed after 2 s and then every 10 s.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rocsolid.errors import UsageError
from rocsolid.model.progress import OnStep, Step, ignore_step

_TERMINAL_INTERVAL_S: Final = 0.2
_FIRST_LINE_S: Final = 2.0  # where stderr is not a terminal
_LOG_INTERVAL_S: Final = 10.0  # likewise
_GRACE_S: Final = 5.0  # this long after the deadline, faulthandler ends the process even if the GIL is held
_TIMED_OUT: Final = 124  # the exit code
_BAR_CHARS: Final = 20
_MIN_BAR_CHARS: Final = 5
_MIN_STEPS_FOR_ESTIMATE: Final = 2
_UNLIMITED: Final = 200  # columns


def step_line(
    step: Step,
    elapsed_s: float,
    *,
    phase_s: float | None = None,
    step_s: float = 0.0,
    budget_s: float = 0.0,
    bar: bool = False,
    columns: int = _UNLIMITED,
) -> str:
    """Return the line for a step: bar, k of n, elapsed and remaining time, what is tried, the best so far.

    `phase_s` is the time since the first of the `step.total` steps; by default, all the elapsed time. `step_s` is the time since this
    step began. Where the line would not fit into the columns, the bar is shorter or left out.
    """
    parts = [f"{min(step.done + 1, step.total)} of {step.total}"] if step.total else []
    parts.append(f"{elapsed_s:.0f} s" + (f" of {budget_s:.0f} s" if budget_s else ""))
    if step.total and step.done >= _MIN_STEPS_FOR_ESTIMATE and step.alike and not budget_s:
        per_step_s = (elapsed_s - step_s if phase_s is None else phase_s - step_s) / step.done
        left_s = per_step_s * (step.total - step.done) - min(step_s, per_step_s)
        parts.append(f"about {left_s:.0f} s left")
    share = step.done / step.total if step.total else elapsed_s / budget_s if budget_s else 0.0
    text = f"{', '.join(parts)}: {step.what}" + (f"; best so far: {step.best}" if step.best else "")
    chars = min(_BAR_CHARS, columns - len(text) - len("[] "))
    if bar and (step.total or budget_s) and chars >= _MIN_BAR_CHARS:
        text = f"[{'#' * round(chars * min(1.0, share)):<{chars}}] {text}"
    return text


@contextmanager
def show_steps(
    *, budget_s: float = 0.0, deadline_s: float | None = None, stacks: Callable[[], str] = str
) -> Iterator[OnStep]:
    """Show the steps that are passed to the yielded function, while the block runs."""
    started = phase_started = step_started = time.monotonic()
    current: Step | None = None

    def on_step(step: Step) -> None:
        nonlocal current, phase_started, step_started
        now = time.monotonic()
        if current is None or current.total != step.total or step.done < current.done:
            phase_started = now
        if current is None or current.total != step.total or step.done != current.done:
            step_started = now
        current = step

    def line() -> str:
        if current is None:
            return ""
        now = time.monotonic()
        is_terminal = sys.stderr.isatty()
        return step_line(
            current,
            now - started,
            phase_s=now - phase_started,
            step_s=now - step_started,
            budget_s=budget_s,
            bar=is_terminal,
            columns=_columns() if is_terminal else _UNLIMITED,
        )

    with progress(line, deadline_s=deadline_s, stacks=stacks):
        yield on_step


@contextmanager
def steps_for(progress: "bool | OnStep | None", *, budget_s: float = 0.0) -> Iterator[OnStep]:
    """Yield the function for the argument `progress=`: True shows the steps on stderr, a function gets them, False shows nothing."""
    if progress is True:
        with show_steps(budget_s=budget_s) as on_step:
            yield on_step
    elif progress in (False, None):
        yield ignore_step
    elif callable(progress):
        yield progress
    else:
        msg = f"progress={progress!r}: pass True, False, or a function that takes a step"
        raise UsageError(msg)


@contextmanager
def progress(
    current_step: Callable[[], str], *, deadline_s: float | None = None, stacks: Callable[[], str] = str
) -> Iterator[None]:
    """Show the text that `current_step` returns while the block runs.

    At the deadline, the text and the stacks are printed and the process ends with exit code 124.
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
    next_line_at, shown = started + _FIRST_LINE_S, False
    while not ended.wait(_TERMINAL_INTERVAL_S):
        now = time.monotonic()
        if deadline_s and now - started > deadline_s:
            _end_process(
                f"error: the deadline of {deadline_s:g} s was exceeded; current step: {current_step() or 'not compiling'}",
                stacks(),
            )
        text = current_step() if terminal or now >= next_line_at else ""
        if text and terminal:
            text = text[: _columns()]
            sys.stderr.write(f"\r{text}\033[K")
            sys.stderr.flush()
            shown = True
        elif text:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
            next_line_at = now + _LOG_INTERVAL_S
    if shown:
        sys.stderr.write("\r\033[K")


def _columns() -> int:
    """Return how many characters fit into a line of the terminal, without the last, which some terminals wrap."""
    return os.get_terminal_size(sys.stderr.fileno()).columns - 1


def _end_process(message: str, stacks: str) -> None:
    sys.stderr.write(f"\nrocsolid: {message}\n{stacks}\n")
    sys.stderr.flush()
    os._exit(_TIMED_OUT)  # the hanging thread cannot raise an exception
