"""The command line: parse the arguments, call the API, print the result, return the exit code."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    # First of all: Ctrl-C during an import would otherwise end in a traceback, or be lost in an extension module.
    in_main_program = argv is None
    if in_main_program and signal.getsignal(signal.SIGINT) is not None:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from rocsolid.cli.app import run

        return run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        if in_main_program:
            signal.signal(signal.SIGINT, _exit_now)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, end at once: what is half imported cannot be used or cleaned up."""
    outer = frame
    while outer is not None:
        if outer.f_code.co_filename.startswith("<frozen importlib"):
            _exit_now(number, frame)
        outer = outer.f_back
    raise KeyboardInterrupt


def _exit_now(number: int, frame: FrameType | None) -> None:
    del number, frame
    os.write(2, b"rocsolid: interrupted\n")
    os._exit(_INTERRUPTED)
