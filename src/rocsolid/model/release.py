"""Compares versions, and describes the range of versions for which a statement holds."""

import re
from dataclasses import dataclass
from functools import lru_cache

_NUMBERS = re.compile(r"\s*v?(\d+(?:\.\d+)*)")


@lru_cache(maxsize=256)
def parts(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 13, 0) for `2.13.0+cpu`, and () for text that starts without a number."""
    match = _NUMBERS.match(version)
    return tuple(int(number) for number in match[1].split(".")) if match else ()


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1, comparing only the parts that both have: `2.9` and `2.9.1` are equal."""
    a, b = parts(left), parts(right)
    shared = min(len(a), len(b))
    return (a[:shared] > b[:shared]) - (a[:shared] < b[:shared])


@dataclass(frozen=True)
class Span:
    """Releases from `first` to `last`, both included. An empty `first` or `last` means that there is no limit on that side.

    An incomplete version is in the span if a complete version that starts like it is: `7.2` is in 7.2.0 to 7.2.3, because a needless
    warning is better than a missing one. An unknown version is only in the span that has no limits.
    """

    first: str = ""
    last: str = ""

    def holds(self, version: str) -> bool:
        """Return whether `version` is in the span."""
        if not self.first and not self.last:
            return True
        if not parts(version):
            return False
        return not (
            (self.first and compare(version, self.first) < 0) or (self.last and compare(version, self.last) > 0)
        )

    def __str__(self) -> str:
        match self.first, self.last:
            case "", "":
                return "all"
            case first, "":
                return f"{first} and later"
            case "", last:
                return f"up to {last}"
            case first, last:
                return first if first == last else f"{first} to {last}"


EVERY_RELEASE = Span()


def span(text: str) -> Span:
    """Parse a span as the catalogue writes it: `2.9..2.13`, `2.10..`, `..2.9`, `7.2.0`, or an empty string for all releases."""
    first, dots, last = text.partition("..")
    return Span(first, last) if dots else Span(first, first)
