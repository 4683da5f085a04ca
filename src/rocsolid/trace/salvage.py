"""What can still be read of a piece of text in which an event is broken, or the list of events ends."""

import json
import re
from dataclasses import dataclass
from typing import Final

_DECODER: Final = json.JSONDecoder()
_NEXT: Final = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|args|bp|dur|size)"\s*:)')
_SPACE: Final = re.compile(rb"[\s,]*")
_CLOSED: Final = re.compile(rb"\s*\]")


@dataclass(frozen=True, kw_only=True)
class Salvaged:
    """Events that stand alone, how many do not, and where the list of events was closed."""

    events: tuple[bytes, ...]
    lost: int
    end: int | None


def salvage(text: bytes, *, last: bool) -> Salvaged:
    """Go from event to event; leave out what is broken, and go on behind it. `last`: nothing follows in the file."""
    letters = text.decode("latin-1")  # a byte is a letter, so that offsets hold
    events: list[bytes] = []
    lost, at = 0, 0
    while True:
        at = _space_after(text, at)
        if _CLOSED.match(text, at):
            return Salvaged(events=tuple(events), lost=lost, end=at)
        if at >= len(text):
            return Salvaged(events=tuple(events), lost=lost, end=None)
        try:
            _, after = _DECODER.raw_decode(letters, at)
        except (ValueError, RecursionError):
            lost += 1
            border = _NEXT.search(text, at)
            if border is None:
                return Salvaged(events=tuple(events), lost=lost, end=_end_behind(text, at) if last else None)
            at = border.end()
            continue
        events.append(text[at:after])
        at = after


def _space_after(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _end_behind(text: bytes, at: int) -> int | None:
    """The list may end right behind a broken event: a bracket, then nothing, a brace or another key."""
    found = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[A-Za-z_ ]+"\s*:|\}|$))').search(text, at)
    return found.end() if found else None
