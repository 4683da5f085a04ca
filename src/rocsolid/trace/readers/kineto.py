"""Reads torch.profiler (Kineto) traces: JSON, plain or gzip, with any indentation and size, also if damaged."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rocsolid.errors import InputError
from rocsolid.measure.gc_pause import gc_paused
from rocsolid.trace.columns import TraceColumns
from rocsolid.trace.readers.bytestream import ByteStream
from rocsolid.trace.readers.c_scanner import Scanner
from rocsolid.trace.readers.c_scanner_build import c_library
from rocsolid.trace.readers.event_decoder import DECODER, PYTHON_FUNCTION, EventDecoder
from rocsolid.trace.readers.json_events import (
    DEFAULT_SEPARATOR,
    EventSeparator,
    detect_separator,
    find_first_event,
    last_event_boundary,
    parse_metadata,
    recover_events,
)
from rocsolid.trace.readers.kineto_columns import KinetoColumnBuilder

_DETECTION_BYTES: Final = 1 << 20  # text from which the separator is detected; it must hold two events
_MAX_HEAD_BYTES: Final = 64 << 20
_MAX_EVENT_BYTES: Final = 16 << 20
_MAX_TAIL_BYTES: Final = 16 << 20
_LONG_EVENT_BYTES: Final = 4 << 20  # if an event is longer, only new text is searched for its end
_MIN_LOST_EVENTS: Final = 3  # for each broken text
_OVERLAP_BYTES: Final = 4096  # of the text before; a separator can be cut between two chunks


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """The part of an uncompressed file that one process reads. It begins and ends between two events."""

    first: int
    last: int | None
    separator: EventSeparator
    has_list_end: bool  # whether the list of events ends in this part


def read_kineto(file: Path, part: FilePart | None = None, *, read_ahead: bool = True) -> TraceColumns:
    """Read a file, or one part of it. `read_ahead`: decompress in a thread."""
    with gc_paused():  # events contain no cycles, and a collection costs as much as decoding them
        reader = _KinetoReader(file, part, read_ahead=read_ahead)
        reader.read()
    return reader.columns()


class _KinetoReader:
    """Reads the text once. It cuts the text between events, decodes the events and adds them to the columns."""

    def __init__(self, file: Path, part: FilePart | None, *, read_ahead: bool) -> None:
        self.file = file
        self.read_ahead = read_ahead
        self.part = part
        self.separator = part.separator if part else DEFAULT_SEPARATOR
        self.builder = KinetoColumnBuilder()
        self.decoder = EventDecoder()
        library = c_library()
        self.scanner = Scanner(library, self.builder) if library else None
        self.held: list[bytes] = []  # text after the last complete event, which is read with the next chunk
        self.head = b""
        self.tail = b""
        self.ended = False
        self.damage: list[str] = []
        self.broken_bytes = 0
        self.size = 0  # of the text

    def read(self) -> None:
        part = self.part
        first, last = (part.first, part.last) if part else (0, None)
        stream = ByteStream(self.file, first=first, last=last, read_ahead=self.read_ahead)
        chunks = iter(stream)
        if part is None:
            self._add_chunk(self._first_events(chunks))
        for chunk in chunks:
            self._add_chunk(chunk)
        rest = b"".join(self.held)
        if not self.ended and rest.strip():
            self._decode(rest, len(rest), last=True)
        if stream.damage:
            self.damage.append(stream.damage)
        if not self.ended and (part is None or part.has_list_end):
            self.damage.append("the file is truncated: the list of events does not end")

    def _first_events(self, chunks: Iterator[bytes]) -> bytes:
        """Return the text from the first event on. It is long enough to detect the separator."""
        text, start = b"", None
        for chunk in chunks:
            start = find_first_event(text + chunk, len(text)) if start is None else start
            text += chunk
            if len(text) > _MAX_HEAD_BYTES or (start is not None and len(text) - start > _DETECTION_BYTES):
                break
        if start is None:
            msg = f'{self.file} is not a trace: it has no "traceEvents" list'
            raise InputError(msg)
        self.head = text[:start]
        self.separator = detect_separator(text[start:])
        return text[start:]

    def _add_chunk(self, chunk: bytes) -> None:
        """Decode the complete events and hold the text after them."""
        if self.ended:
            self._add_to_tail(chunk)
            return
        if sum(map(len, self.held)) > _LONG_EVENT_BYTES and not self._has_boundary(chunk):
            return
        self.size += len(chunk)
        text = b"".join((*self.held, chunk))
        boundary = last_event_boundary(text, self.separator)
        if boundary is None:
            self.held = [text]
            return
        end, begin = boundary
        self._decode(text, end)
        self.held = [text[begin:]]
        if self.ended:
            self._add_to_tail(text[end:])

    def _has_boundary(self, chunk: bytes) -> bool:
        """Return whether a very long event ends in this chunk. Beyond `_MAX_EVENT_BYTES`, the event is skipped."""
        if last_event_boundary(self.held[-1][-_OVERLAP_BYTES:] + chunk, self.separator):
            return True
        self.held.append(chunk)
        size = sum(map(len, self.held))
        if size > _MAX_EVENT_BYTES:
            self.builder.broken += 1
            self.damage.append(f"{size:,} bytes were skipped: no boundary between events was found in them")
            self.held = []
        return False

    def _decode(self, text: bytes, end: int, *, last: bool = False) -> None:
        if self.scanner and self.scanner.read(text, end):
            return
        try:
            self._decode_valid(b"".join((b"[", memoryview(text)[:end], b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._decode_parts(self.separator.split(text[:end]), last=last)
        if self.scanner:
            self.builder.flush()  # before the scanner continues, so that rows stay in file order
            self.scanner = None if self.scanner.failing else self.scanner

    def _decode_valid(self, events: bytes) -> None:
        decoded, functions = self.decoder.decode(events)
        self.builder.add(decoded)
        if functions:
            self.builder.add_unused(PYTHON_FUNCTION, functions)

    def _decode_parts(self, parts: list[bytes], *, last: bool) -> None:
        """Halve the text until the broken event, or the end of the list of events, is found."""
        if len(parts) == 1:
            self._recover(parts[0], last=last)
            return
        middle = len(parts) // 2
        for half, final in ((parts[:middle], False), (parts[middle:], last)):
            if self.ended:
                self._add_to_tail(self.separator.comma.join(half))
                continue
            try:
                self.builder.add(DECODER.decode(b"[" + b",".join(half) + b"]"))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._decode_parts(half, last=final)

    def _recover(self, text: bytes, *, last: bool) -> None:
        found = recover_events(text, last=last)
        for event in found.events:
            try:
                self.builder.add(DECODER.decode(b"[" + event + b"]"))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self.builder.broken += 1
        self.builder.broken += found.broken
        self.broken_bytes += found.broken_bytes
        if found.list_end is not None:
            self.ended = True
            self._add_to_tail(text[found.list_end :])

    def _add_to_tail(self, text: bytes) -> None:
        if len(self.tail) < _MAX_TAIL_BYTES:
            self.tail += text

    def columns(self) -> TraceColumns:
        builder = self.builder
        if self.scanner:
            self.scanner.flush()
        tables = builder.tables()
        metadata, more = parse_metadata(self.head, self.tail)
        if more and not self.damage:
            self.damage.append(
                f"the file goes on after the end of the trace: {more:,} bytes, a second JSON document, were not read"
            )
        # One broken event is shorter. A hole in the file takes many events with it.
        lost = self.broken_bytes * builder.events // max(self.size, 1)
        if lost > _MIN_LOST_EVENTS * max(builder.broken, 1) and not self.damage:
            self.damage.append(f"{self.broken_bytes:,} bytes are not events; about {lost:,} events are lost")
        return TraceColumns(
            producer="kineto",
            names=tuple(builder.names),
            launch_configs=tuple(launch_config_text(*config) for config in builder.launch_configs),
            threads=tuple(f"{pid}/{tid}" for pid, tid in builder.threads),
            details=tuple(text.decode("utf-8", "replace") for text in builder.details) or ("",),
            thread_names=builder.thread_names,
            events=builder.events + builder.broken,
            skipped=builder.broken + builder.unusable,
            unused_events=dict(sorted(builder.unused_events.items())),
            damage=tuple(self.damage),
            metadata=metadata,
            **tables,
        )


def launch_config_text(grid: bytes, block: bytes, registers: object, shared: object) -> str:
    """Return grid, block, registers and shared memory of a launch, as far as the trace contains them."""
    parts = [f"{label} {_triple(text)}" for label, text in (("grid", grid), ("block", block)) if text]
    parts += [f"{registers} registers"] if registers not in (None, 0) else []
    parts += [f"{shared} B shared"] if shared not in (None, 0) else []
    return ", ".join(parts)


def _triple(text: bytes) -> str:
    return "×".join(part.strip() for part in text.decode("utf-8", "replace").strip("[] \n").split(","))
