"""Finds where the events of a JSON trace begin and end in its text, with any indentation and in damaged files."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_LIST_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_MAX_LIST_START_BYTES: Final = 100  # the start of the list can be cut between two chunks
_BARE_LIST: Final = re.compile(rb"\s*\[\s*(?=\{)")
# The text between two events, with any indentation. Nested objects are not matched: none starts with one of these keys.
_BOUNDARY: Final = re.compile(rb'\}(\s*,\s*)\{\s*"(?:ph|name|cat|ts|pid|args|bp|dur)"\s*:')
_NEXT_EVENT: Final = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|args|bp|dur|size)"\s*:)')
_SPACE_OR_COMMA: Final = re.compile(rb"[\s,]*")
_LIST_END: Final = re.compile(rb"\s*\]")
# After a broken last event: "]" and then the end of the text, a brace or another key.
_LIST_END_AFTER_EVENT: Final = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[A-Za-z_ ]+"\s*:|\}|$))')
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, kw_only=True)
class EventSeparator:
    """The text that separates two events in one file, such as `}, {`. It depends on how the file is indented."""

    event_end: bytes  # the closing brace, with its indentation if it is on its own line
    comma: bytes  # the comma with the space around it
    event_start: bytes  # the opening brace, with the first key if the events are on one line

    @property
    def text(self) -> bytes:
        """The whole separator."""
        return self.event_end + self.comma + self.event_start

    def split(self, events: bytes) -> list[bytes]:
        """Split text at each separator.

        A part is one event. It contains several events if the text between them differs from the separator.
        """
        parts = events.split(self.text)
        last = len(parts) - 1
        return [
            (self.event_start if index else b"") + part + (self.event_end if index < last else b"")
            for index, part in enumerate(parts)
        ]


DEFAULT_SEPARATOR: Final = EventSeparator(event_end=b"}", comma=b", ", event_start=b'{"ph"')


def find_first_event(text: bytes, start: int = 0) -> int | None:
    """Return the offset of the first event; None when there is none. The text before `start` was already searched."""
    found = _LIST_START.search(text, max(0, start - _MAX_LIST_START_BYTES)) or _BARE_LIST.match(text)
    return found.end() if found else None


def detect_separator(events: bytes) -> EventSeparator:
    """Return the separator between the first two events."""
    text = events[: 1 << 20].decode("latin-1")  # one character per byte, so that offsets are the same
    try:
        _, end = _DECODER.raw_decode(text, 0)
    except (ValueError, RecursionError):
        return _separator_after_damage(events)
    comma = re.compile(r"\s*,\s*").match(text, end)
    if comma is None:
        return DEFAULT_SEPARATOR
    return _separator(text, end, comma.end())


def _separator_after_damage(events: bytes) -> EventSeparator:
    """Return the first text that looks like a separator. Used when the first event is broken."""
    found = _BOUNDARY.search(events)
    if found is None:
        return DEFAULT_SEPARATOR
    return _separator(events[: found.end()].decode("latin-1"), found.start() + 1, found.end(1))


def _separator(text: str, end: int, begin: int) -> EventSeparator:
    """Return the separator between an event that ends at `end` and one that begins at `begin`."""
    comma = text[end:begin]
    closing, opening = "}", "{"
    if "\n" in comma:
        line_start = text.rfind("\n", 0, end - 1)
        if not text[line_start + 1 : end - 1].strip():
            closing = text[line_start:end]
    else:
        key = re.compile(r'\{\s*"[^"]*"').match(text, begin)
        opening = key.group() if key else "{"
    return EventSeparator(
        event_end=closing.encode("latin-1"), comma=comma.encode("latin-1"), event_start=opening.encode("latin-1")
    )


def last_event_boundary(text: bytes, separator: EventSeparator) -> tuple[int, int] | None:
    """Return where the last complete event ends and where the next one begins; None when no event ends here."""
    offset = text.rfind(separator.text)
    if offset >= 0:
        end = offset + len(separator.event_end)
        return end, end + len(separator.comma)
    boundaries = list(_BOUNDARY.finditer(text, max(0, len(text) - (1 << 20))))
    return (boundaries[-1].start() + 1, boundaries[-1].end(1)) if boundaries else None


def first_event_boundary(text: bytes, separator: EventSeparator) -> int | None:
    """Return where the first event after a separator begins; None when there is no separator."""
    offset = text.find(separator.text)
    return offset + len(separator.event_end) + len(separator.comma) if offset >= 0 else None


def parse_metadata(head: bytes, tail: bytes) -> tuple[dict[str, Any], int]:
    """Return the values before and after the events, such as devices, versions and the rank. Invalid JSON is ignored.

    Also return the number of bytes after the end of the JSON document; they are a second document.
    """
    metadata: dict[str, Any] = {}
    start = head.find(b"{")
    more = 0
    for text in (head[start:] + b"]}" if start >= 0 else b"", b'{"traceEvents":[' + tail.lstrip()):
        characters = text.decode("utf-8", "replace")
        try:
            data, end = _DECODER.raw_decode(characters)
            more = len(characters[end:].strip(" \t\r\n\0"))
        except (ValueError, RecursionError):
            rest = tail.lstrip().removeprefix(b"]")  # of a bare list, which has no closing brace
            more = len(rest.strip()) if b'"ph"' in rest else 0
            continue
        if isinstance(data, dict):
            metadata.update(data)
    metadata.pop("traceEvents", None)
    return metadata, more


@dataclass(frozen=True, kw_only=True)
class RecoveredEvents:
    """The events that were found in a damaged text."""

    events: tuple[bytes, ...]  # complete events
    broken: int  # the number of broken events
    broken_bytes: int  # the length of the text that is not part of an event
    list_end: int | None  # the offset at which the list of events ends; None when it does not end in this text


def recover_events(text: bytes, *, last: bool) -> RecoveredEvents:
    """Go through a text event by event and skip the broken ones. `last` means that the file ends with this text."""
    characters = text.decode("latin-1")  # one character per byte, so that offsets are the same
    events: list[bytes] = []
    broken, broken_bytes, offset = 0, 0, 0

    def found(list_end: int | None) -> RecoveredEvents:
        return RecoveredEvents(events=tuple(events), broken=broken, broken_bytes=broken_bytes, list_end=list_end)

    while True:
        space = _SPACE_OR_COMMA.match(text, offset)
        offset = space.end() if space else offset
        if _LIST_END.match(text, offset):
            return found(offset)
        if offset >= len(text):
            return found(None)
        try:
            _, event_end = _DECODER.raw_decode(characters, offset)
        except (ValueError, RecursionError):
            broken += 1
            next_event = _NEXT_EVENT.search(text, offset)
            if next_event is None:
                end = _LIST_END_AFTER_EVENT.search(text, offset) if last else None
                broken_bytes += (end.end() if end else len(text)) - offset
                return found(end.end() if end else None)
            broken_bytes += next_event.end() - offset
            offset = next_event.end()
            continue
        events.append(text[offset:event_end])
        offset = event_end
