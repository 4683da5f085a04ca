"""Parse times, sizes and counts of command-line options."""

import argparse
import re
from typing import Final

from rocsolid.errors import UsageError

_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def seconds(text: str) -> float:
    """Parse `90s`, `10m`, `2h` or `45` (seconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not match:
        msg = f"{text!r} is not a time; write 90s, 10m or 2h"
        raise UsageError(msg)
    return float(match[1]) * _SECONDS[match[2]]


def size(text: str) -> int:
    """Parse `64G`, `500M` or a number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.strip().upper())
    if not match:
        msg = f"{text!r} is not a size; write 500M or 64G"
        raise UsageError(msg)
    return int(float(match[1]) * _BYTES[match[2]])


def budget(text: str) -> float:
    """Parse a time budget, such as `10m`; it may be 0."""
    try:
        return seconds(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def deadline(text: str) -> float:
    """Parse a deadline: a time greater than 0."""
    parsed = budget(text)
    if parsed <= 0:
        msg = f"a deadline must be longer than 0 s, not {parsed:g} s"
        raise argparse.ArgumentTypeError(msg)
    return parsed


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"must be a whole number of at least 1, not {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)
