"""Format times, sizes, shares and kernel names."""

import re
from typing import Final

_COMMON_PREFIXES: Final = re.compile(r"^void |\(anonymous namespace\)::|at::native::|std::")


def time(ns: float) -> str:
    """A time in nanoseconds, with a suitable unit."""
    for unit, symbol in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit:
            return f"{ns / unit:,.2f} {symbol}"
    return f"{ns:.0f} ns"


def size(number_of_bytes: float) -> str:
    """A number of bytes, with a suitable unit."""
    for unit, symbol in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number_of_bytes) >= unit:
            return f"{number_of_bytes / unit:,.2f} {symbol}"
    return f"{number_of_bytes:.0f} B"


def percent(part: float, whole: float) -> str:
    """A share in percent; a dash if the whole is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def plain_name(name: str) -> str:
    """A kernel's name without common prefixes and namespaces."""
    return _COMMON_PREFIXES.sub("", name)


def short_name(name: str, width: int) -> str:
    """The plain name, shortened to at most `width` characters."""
    plain = plain_name(name)
    return plain if len(plain) <= width else plain[: max(1, width - 1)] + "…"
