"""Times as they are written, to whole nanoseconds, exactly."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Raw

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# Below this many microseconds a double times a thousand, rounded, is exact; above it the text must be read.
_EXACT_US: Final = float(2**43)
_LARGEST_US: Final = 9.0e15
_LONGEST: Final = 16  # digits of microseconds; as nanoseconds they fit 64 bits until the year 2255
_COMMA, _DOT = b",."


def nanoseconds(texts: Sequence[Raw]) -> tuple[Int64, Bools]:
    """Microseconds as text to nanoseconds; and which of them are times at all."""
    joined = b",".join(texts)
    letters = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(letters == _COMMA), len(letters))
    dots = np.flatnonzero(letters == _DOT)
    digits = int(((letters >= ord("0")) & (letters <= ord("9"))).sum())
    lengths = np.diff(ends, prepend=-1) - 1
    plain = digits + len(dots) + len(ends) - 1 == len(letters) and len(ends) == len(texts)
    if plain and int(lengths.min(initial=1)) > 0:
        longest = int(lengths.max(initial=0))
        if len(dots) == 0 and longest <= _LONGEST:
            return _whole_numbers(joined, len(texts), 1000)
        # Kineto writes three decimals always: leave out the point, and the number is in nanoseconds.
        if longest <= _LONGEST + len(".000") and len(dots) == len(ends) and bool((ends - dots == len(".000")).all()):
            return _whole_numbers(joined.replace(b".", b""), len(texts), 1)
    return _any_numbers(texts)


def durations(values: Sequence[int | float | None]) -> tuple[Int64, Bools]:
    """Lengths in microseconds to nanoseconds; and which of them are lengths at all."""
    given = np.array(values, dtype=np.float64)  # None becomes not-a-number
    good = np.isfinite(given) & (given >= 0) & (given < _LARGEST_US)
    return np.rint(np.where(good, given, 0.0) * 1000.0).astype(np.int64), good


def _whole_numbers(joined: bytes, count: int, unit: int) -> tuple[Int64, Bools]:
    found = np.fromstring(joined, dtype=np.int64, sep=",")
    if len(found) != count:  # never seen; the text was checked before
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    good = found < int(_LARGEST_US) * (1000 // unit)
    return np.where(good, found, 0) * unit, good


def _any_numbers(texts: Sequence[Raw]) -> tuple[Int64, Bools]:
    """Decimals of any length: by doubles where these are exact, otherwise digit by digit."""
    try:
        values = np.array([float(bytes(text)) for text in texts])
    except ValueError:
        return _one_by_one(texts)
    if len(values) and float(np.abs(values).max()) >= _EXACT_US:
        return _one_by_one(texts)
    return np.rint(values * 1000.0).astype(np.int64), np.ones(len(values), dtype=np.bool_)


def _one_by_one(texts: Sequence[Raw]) -> tuple[Int64, Bools]:
    found = np.zeros(len(texts), dtype=np.int64)
    good = np.zeros(len(texts), dtype=np.bool_)
    for number, text in enumerate(texts):
        try:
            value = Decimal(bytes(text).decode())
            usable = value.is_finite() and abs(value) <= Decimal(_LARGEST_US)
        except (ArithmeticError, ValueError):
            continue
        if usable:
            found[number], good[number] = int((value * 1000).to_integral_value()), True
    return found, good
