"""Where events begin and end in the text of a JSON trace, for any indentation, also in damaged text."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BARE_LIST: Final = re.compile(rb"\s*\[\s*(?=\{)")
# A boundary between two events in any layout: no argument list starts with one of these keys.
_BOUNDARY: Final = re.compile(rb'\}(\s*,\s*)\{\s*"(?:ph|name|cat|ts|pid|args|bp|dur)"\s*:')
_NEXT_EVENT: Final = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|args|bp|dur|size)"\s*:)')
_SPACE_OR_COMMA: Final = re.compile(rb"[\s,]*")
_LIST_END: Final = re.compile(rb"\s*\]")
# After a broken last event: "]" and then the end of the text, a brace or another key.
_LIST_END_AFTER_EVENT: Final = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[A-Za-z_ ]+"\s*:|\}|$))')
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The text at a boundary between two events: the end of one, the separator, the beginning of the next."""

    end: bytes  # the closing brace, with its indentation when it is on a line of its own
    between: bytes
    begin: bytes  # the opening brace, with the first key when everything is on one line

    @property
    def text(self) -> bytes:
        """The whole boundary."""
        return self.end + self.between + self.begin

    def split(self, events: bytes) -> list[bytes]:
        """Split text at its boundaries; a part is one event, or several when their boundary looks different."""
        parts = events.split(self.text)
        last = len(parts) - 1
        return [(self.begin if n else b"") + part + (self.end if n < last else b"") for n, part in enumerate(parts)]


DEFAULT_LAYOUT: Final = Layout(end=b"}", between=b", ", begin=b'{"ph"')


def find_first_event(text: bytes, since: int = 0) -> int | None:
    """The offset of the first event, searched from `since` on; `None` when it is not in this text."""
    found = _EVENTS.search(text, max(0, since - 100)) or _BARE_LIST.match(text)
    return found.end() if found else None


def detect_layout(events: bytes) -> Layout:
    """The layout of a trace, from its first two events."""
    text = events[: 1 << 20].decode("latin-1")  # one character per byte, so that offsets are the same
    try:
        _, end = _DECODER.raw_decode(text, 0)
    except (ValueError, RecursionError):
        return _layout_after_damage(events)
    between = re.compile(r"\s*,\s*").match(text, end)
    if between is None:
        return DEFAULT_LAYOUT
    return _layout(text, end, between.end())


def _layout_after_damage(events: bytes) -> Layout:
    """The first event is broken: use the first text that looks like a boundary."""
    found = _BOUNDARY.search(events)
    if found is None:
        return DEFAULT_LAYOUT
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


def last_event_boundary(text: bytes, layout: Layout) -> tuple[int, int] | None:
    """Where the last complete event ends, and where the next one begins."""
    at = text.rfind(layout.text)
    if at >= 0:
        end = at + len(layout.end)
        return end, end + len(layout.between)
    boundaries = list(_BOUNDARY.finditer(text, max(0, len(text) - (1 << 20))))
    return (boundaries[-1].start() + 1, boundaries[-1].end(1)) if boundaries else None


def first_event_boundary(text: bytes, layout: Layout) -> int | None:
    """Where the first event after a boundary begins."""
    at = text.find(layout.text)
    return at + len(layout.end) + len(layout.between) if at >= 0 else None


def parse_metadata(head: bytes, tail: bytes) -> dict[str, Any]:
    """The values before and after the events: devices, versions, the rank. Text that is not JSON is ignored."""
    found: dict[str, Any] = {}
    start = head.find(b"{")
    for text in (head[start:] + b"]}" if start >= 0 else b"", b'{"traceEvents":[' + tail.lstrip()):
        # Kineto writes one value per line, and newer versions leave an empty line where a value would be.
        try:
            data = json.loads(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            found.update(data)
    found.pop("traceEvents", None)
    return found


@dataclass(frozen=True, kw_only=True)
class RecoveredEvents:
    """The complete events of a damaged text, the number of broken ones, and where the list of events ended."""

    events: tuple[bytes, ...]
    lost: int
    end: int | None


def recover_events(text: bytes, *, last: bool) -> RecoveredEvents:
    """Go through a text event by event and skip the broken ones. `last`: this is the end of the file."""
    characters = text.decode("latin-1")  # one character per byte, so that offsets are the same
    events: list[bytes] = []
    lost, at = 0, 0
    while True:
        space = _SPACE_OR_COMMA.match(text, at)
        at = space.end() if space else at
        if _LIST_END.match(text, at):
            return RecoveredEvents(events=tuple(events), lost=lost, end=at)
        if at >= len(text):
            return RecoveredEvents(events=tuple(events), lost=lost, end=None)
        try:
            _, after = _DECODER.raw_decode(characters, at)
        except (ValueError, RecursionError):
            lost += 1
            following = _NEXT_EVENT.search(text, at)
            if following is None:
                end = _LIST_END_AFTER_EVENT.search(text, at) if last else None
                return RecoveredEvents(events=tuple(events), lost=lost, end=end.end() if end else None)
            at = following.end()
            continue
        events.append(text[at:after])
        at = after
