"""Converts timestamps (text) and durations in microseconds to exact nanoseconds."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Raw

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# Below this many microseconds, a double times 1000, rounded, is exact. Above it, the digits are parsed.
_MAX_EXACT_US: Final = float(2**43)
_MAX_US: Final = 9.0e15
_MAX_DIGITS: Final = 16  # of microseconds; as nanoseconds they fit into 64 bits until the year 2255
_COMMA, _DOT = b",."


def parse_timestamps(texts: Sequence[Raw]) -> tuple[Int64, Bools]:
    """Convert microseconds as text to nanoseconds. Also return a mask of the texts that are valid times."""
    joined = b",".join(texts)
    characters = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(characters == _COMMA), len(characters))
    dots = np.flatnonzero(characters == _DOT)
    digits = int(((characters >= ord("0")) & (characters <= ord("9"))).sum())
    lengths = np.diff(ends, prepend=-1) - 1
    only_digits = digits + len(dots) + len(ends) - 1 == len(characters) and len(ends) == len(texts)
    if only_digits and int(lengths.min(initial=1)) > 0:
        longest = int(lengths.max(initial=0))
        if len(dots) == 0 and longest <= _MAX_DIGITS:
            return _integers(joined, len(texts), 1000)
        # Kineto always writes three decimals: without the point, the number is in nanoseconds.
        if longest <= _MAX_DIGITS + len(".000") and len(dots) == len(ends) and bool((ends - dots == len(".000")).all()):
            return _integers(joined.replace(b".", b""), len(texts), 1)
    return _decimals(texts)


def parse_durations(values: Sequence[int | float | None]) -> tuple[Int64, Bools]:
    """Convert microseconds to nanoseconds. Also return a mask of the values that are valid durations."""
    durations = np.array(values, dtype=np.float64)  # None becomes NaN
    good = np.isfinite(durations) & (durations >= 0) & (durations < _MAX_US)
    return np.rint(np.where(good, durations, 0.0) * 1000.0).astype(np.int64), good


def _integers(joined: bytes, count: int, unit_ns: int) -> tuple[Int64, Bools]:
    """Convert `count` integers, joined by commas, to nanoseconds."""
    values = np.fromstring(joined, dtype=np.int64, sep=",")
    if len(values) != count:  # does not happen: the caller checked that the text is digits only
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    good = values < int(_MAX_US) * (1000 // unit_ns)
    return np.where(good, values, 0) * unit_ns, good


def _decimals(texts: Sequence[Raw]) -> tuple[Int64, Bools]:
    """Convert numbers with any number of decimals: as doubles if these are exact, otherwise one by one."""
    try:
        values = np.array([float(bytes(text)) for text in texts])
    except ValueError:
        return _one_by_one(texts)
    if len(values) and float(np.abs(values).max()) >= _MAX_EXACT_US:
        return _one_by_one(texts)
    return np.rint(values * 1000.0).astype(np.int64), np.ones(len(values), dtype=np.bool_)


def _one_by_one(texts: Sequence[Raw]) -> tuple[Int64, Bools]:
    found = np.zeros(len(texts), dtype=np.int64)
    good = np.zeros(len(texts), dtype=np.bool_)
    for index, text in enumerate(texts):
        try:
            value = Decimal(bytes(text).decode())
            usable = value.is_finite() and abs(value) <= Decimal(_MAX_US)
        except (ArithmeticError, ValueError):
            continue
        if usable:
            found[index], good[index] = int((value * 1000).to_integral_value()), True
    return found, good
