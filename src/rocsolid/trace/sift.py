"""Python functions are nine tenths of many traces and have no part in the answers: check them, but do not build them."""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from rocsolid.trace.layout import Layout

_FUNCTION: Final = rb'\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"python_function"'


class Anything(Struct, gc=False):
    """An object of which nothing is kept; decoding it still reads every letter."""


_CHECKER: Final = msgspec.json.Decoder(list[Anything])


class Sieve:
    """Finds the events that are no Python functions, in layouts where each brace has a line of its own."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._usable = layout.begin == b"{" and layout.end != b"}"
        self._mark = b""
        self._others: re.Pattern[bytes] | None = None

    def sift(self, text: bytes) -> tuple[bytes, int] | None:
        """The list without its Python functions, and how many these were; `None` where there is nothing to gain.

        Raises as decoding does when any event is broken, one of those left out among them.
        """
        if not self._usable or not self._find_mark(text):
            return None
        if not text.isascii():
            text.decode()  # what is not decoded to text is not checked for being text
        count = len(_CHECKER.decode(text))
        kept = self._kept(text)
        return b"[" + b",".join(kept) + b"]", count - len(kept)

    def _find_mark(self, text: bytes) -> bool:
        """How a Python function begins in this file, letter by letter."""
        if self._others is None:
            found = re.search(rb"\{" + _FUNCTION, text)
            if found is None:
                return False
            self._mark = found.group()
            border = re.escape(self.layout.end + self.layout.between)
            self._others = re.compile(border + b"(?!" + re.escape(self._mark) + rb")\{")
        return self._mark in text

    def _kept(self, text: bytes) -> list[Any]:
        border, begin = self.layout.text, len(self.layout.begin)
        others = self._others
        starts = [found.end() - begin for found in others.finditer(text)] if others else []
        if not text.startswith(self._mark, 1):
            starts.insert(0, 1)
        view, last = memoryview(text), len(text) - 1
        kept = []
        for start in starts:
            end = text.find(border, start)
            kept.append(view[start : end + len(self.layout.end) if end >= 0 else last])
        return kept
