"""Where events begin and end in the text of a trace, whoever wrote it and however it is indented."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BARE_LIST: Final = re.compile(rb"\s*\[\s*(?=\{)")
# Between two events when nothing better is known: the first key of an event is never the first of its arguments too.
_BETWEEN: Final = re.compile(rb'\}(\s*,\s*)\{\s*"(?:ph|name|cat|ts|pid|args|bp|dur)"\s*:')
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The text between two events: the end of one, what separates them, the beginning of the next."""

    end: bytes  # the closing brace, with its indentation where each has a line of its own
    between: bytes
    begin: bytes  # the opening brace, with the first key where all is on one line

    @property
    def text(self) -> bytes:
        """The whole of it."""
        return self.end + self.between + self.begin

    def split(self, events: bytes) -> list[bytes]:
        """Each event, or a few that stand together, as text of its own."""
        parts = events.split(self.text)
        last = len(parts) - 1
        return [(self.begin if n else b"") + part + (self.end if n < last else b"") for n, part in enumerate(parts)]


ANY: Final = Layout(end=b"}", between=b", ", begin=b'{"ph"')


def find_events(text: bytes, since: int = 0) -> int | None:
    """Where the first event begins, looking from `since` on; `None` while that is not to be seen."""
    found = _EVENTS.search(text, max(0, since - 100)) or _BARE_LIST.match(text)
    return found.end() if found else None


def sniff(events: bytes) -> Layout:
    """The layout of a trace, from its first two events."""
    text = events[: 1 << 20].decode("latin-1")  # a byte is a letter, so that offsets hold
    try:
        _, end = _DECODER.raw_decode(text, 0)
    except (ValueError, RecursionError):
        return _guess(events)
    between = re.compile(r"\s*,\s*").match(text, end)
    if between is None:
        return ANY
    return _layout(text, end, between.end())


def _guess(events: bytes) -> Layout:
    """The first event is broken: take the first thing that looks like a border."""
    found = _BETWEEN.search(events)
    if found is None:
        return ANY
    return _layout(events[: found.end()].decode("latin-1"), found.start() + 1, found.end(1))


def _layout(text: str, end: int, begin: int) -> Layout:
    between = text[end:begin]
    closing, opening = "}", "{"
    if "\n" in between:
        line = text.rfind("\n", 0, end - 1)
        if not text[line + 1 : end - 1].strip():
            closing = text[line:end]
    else:
        key = re.compile(r'\{\s*"[^"]*"').match(text, begin)
        opening = key.group() if key else "{"
    return Layout(end=closing.encode("latin-1"), between=between.encode("latin-1"), begin=opening.encode("latin-1"))


def last_border(text: bytes, layout: Layout) -> tuple[int, int] | None:
    """Where the last whole event ends, and where the next one begins."""
    at = text.rfind(layout.text)
    if at >= 0:
        end = at + len(layout.end)
        return end, end + len(layout.between)
    borders = list(_BETWEEN.finditer(text, max(0, len(text) - (1 << 20))))
    return (borders[-1].start() + 1, borders[-1].end(1)) if borders else None


def first_border(text: bytes, layout: Layout) -> int | None:
    """Where the first event after some point of the file begins."""
    at = text.find(layout.text)
    return at + len(layout.end) + len(layout.between) if at >= 0 else None


def metadata(head: bytes, tail: bytes) -> dict[str, Any]:
    """What stands around the events: devices, versions, the rank. What cannot be read is left out."""
    found: dict[str, Any] = {}
    start = head.find(b"{")
    for text in (head[start:] + b"]}" if start >= 0 else b"", b'{"traceEvents":[' + tail.lstrip()):
        # Kineto lists its values line by line, and newer ones leave an empty line where a value would be.
        try:
            data = json.loads(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            found.update(data)
    found.pop("traceEvents", None)
    return found
