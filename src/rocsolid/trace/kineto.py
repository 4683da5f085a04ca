"""Traces of torch's profiler: JSON, plain or gzip, of any layout and any size, damaged ones too."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rocsolid.errors import InputError
from rocsolid.measure.gc_pause import gc_disabled
from rocsolid.trace.bytestream import ByteStream
from rocsolid.trace.c_scanner import Scanner
from rocsolid.trace.c_scanner_build import library
from rocsolid.trace.columns import Columns
from rocsolid.trace.event_columns import FUNCTIONS, Gatherer
from rocsolid.trace.json_layout import ANY, Layout, find_events, last_border, metadata, sniff
from rocsolid.trace.salvage import salvage
from rocsolid.trace.skip_python_events import PLAIN, Sieve

_TWO_EVENTS: Final = 1 << 20
_LONGEST_HEAD: Final = 64 << 20
_LONGEST_EVENT: Final = 16 << 20
_OVERLAP: Final = 4096
_STUCK: Final = 4 << 20
_LONGEST_TAIL: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of a plain file that one process reads: from a border between events to another."""

    first: int
    last: int | None
    layout: Layout
    ends: bool  # whether the end of the list is to be found in it


def read_kineto(file: Path, share: Share | None = None, *, alone: bool = False) -> Columns:
    """All events of a file, or of a share of it, as columns. `alone`: with no thread beside that unpacks."""
    with gc_disabled():  # events and answers hold no cycles; looking for some costs as much as decoding them
        reader = _Reader(file, share, alone=alone)
        reader.read()
    return reader.columns()


class _Reader:
    """One pass over the text: cuts it between events, decodes, hands on."""

    def __init__(self, file: Path, share: Share | None, *, alone: bool) -> None:
        self.file = file
        self.alone = alone
        self.share = share
        self.layout = share.layout if share else ANY
        self.gatherer = Gatherer()
        self.sieve = Sieve()
        native = library()
        self.scanner = Scanner(native, self.gatherer) if native else None
        self.held: list[bytes] = []
        self.head = b""
        self.tail = b""
        self.ended = False
        self.damage: list[str] = []

    def read(self) -> None:
        share = self.share
        first, last = (share.first, share.last) if share else (0, None)
        stream = ByteStream(self.file, first=first, last=last, alone=self.alone)
        pieces = iter(stream)
        if share is None:
            self._take(self._first_events(pieces))
        for piece in pieces:
            self._take(piece)
        rest = b"".join(self.held)
        if not self.ended and rest.strip():
            self._decode(rest, len(rest), last=True)
        if stream.damage:
            self.damage.append(stream.damage)
        if not self.ended and (share is None or share.ends):
            self.damage.append("the list of events has no end: the file was cut off")

    def _first_events(self, pieces: Iterator[bytes]) -> bytes:
        """Everything from the first event on, as far as it was read to find out how events are laid out."""
        text, start = b"", None
        for piece in pieces:
            start = find_events(text + piece, len(text)) if start is None else start
            text += piece
            # The layout is read off the first two events, so wait until they are there.
            if len(text) > _LONGEST_HEAD or (start is not None and len(text) - start > _TWO_EVENTS):
                break
        if start is None:
            msg = f"{self.file} holds no list of trace events"
            raise InputError(msg)
        self.head = text[:start]
        self.layout = sniff(text[start:])
        return text[start:]

    def _take(self, piece: bytes) -> None:
        """Decode up to the last border, hold what follows it."""
        if self.ended:
            self._keep_tail(piece)
            return
        if sum(map(len, self.held)) > _STUCK and not self._border_in(piece):
            return
        text = b"".join((*self.held, piece))
        border = last_border(text, self.layout)
        if border is None:
            self.held = [text]
            return
        end, begin = border
        self._decode(text, end)
        self.held = [text[begin:]]
        if self.ended:
            self._keep_tail(text[end:])

    def _border_in(self, piece: bytes) -> bool:
        """Nothing but one long event, or none: look only at what is new, and give up in the end."""
        if last_border(self.held[-1][-_OVERLAP:] + piece, self.layout):
            return True
        self.held.append(piece)
        size = sum(map(len, self.held))
        if size > _LONGEST_EVENT:
            self.gatherer.broken += 1
            self.damage.append(f"{size:,} bytes without a border between events were left out")
            self.held = []
        return False

    def _decode(self, text: bytes, end: int, *, last: bool = False) -> None:
        if self.scanner and self.scanner.read(text, end):
            return
        try:
            self._use(b"".join((b"[", memoryview(text)[:end], b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._decode_parts(self.layout.split(text[:end]), last=last)
        if self.scanner:
            self.gatherer.settle()  # before the scanner goes on, so that rows stay in the order of the file
            self.scanner = None if self.scanner.hopeless else self.scanner

    def _use(self, events: bytes) -> None:
        kept, functions = self.sieve.decode(events)
        self.gatherer.take(kept)
        if functions:
            self.gatherer.leave(FUNCTIONS, functions)

    def _decode_parts(self, parts: list[bytes], *, last: bool) -> None:
        """Something in here is broken, or the list ends: halve until it is found."""
        if len(parts) == 1:
            self._salvage(parts[0], last=last)
            return
        middle = len(parts) // 2
        for half, final in ((parts[:middle], False), (parts[middle:], last)):
            if self.ended:
                self._keep_tail(self.layout.between.join(half))
                continue
            try:
                self.gatherer.take(PLAIN.decode(b"[" + b",".join(half) + b"]"))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._decode_parts(half, last=final)

    def _salvage(self, text: bytes, *, last: bool) -> None:
        found = salvage(text, last=last)
        for event in found.events:
            try:
                self.gatherer.take(PLAIN.decode(b"[" + event + b"]"))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self.gatherer.broken += 1
        self.gatherer.broken += found.lost
        if found.end is not None:
            self.ended = True
            self._keep_tail(text[found.end :])

    def _keep_tail(self, text: bytes) -> None:
        if len(self.tail) < _LONGEST_TAIL:
            self.tail += text

    def columns(self) -> Columns:
        gathered = self.gatherer
        if self.scanner:
            self.scanner.hand_over()
        tables = gathered.tables()
        return Columns(
            producer="kineto",
            names=tuple(gathered.names),
            shapes=tuple(shape_text(*shape) for shape in gathered.shapes),
            threads=tuple(f"{pid}/{tid}" for pid, tid in gathered.threads),
            thread_names=gathered.thread_names,
            events=gathered.events + gathered.broken,
            skipped=gathered.broken + gathered.unusable,
            set_aside=dict(sorted(gathered.set_aside.items())),
            damage=tuple(self.damage),
            metadata=metadata(self.head, self.tail),
            **tables,
        )


def shape_text(grid: bytes, block: bytes, registers: object, shared: object) -> str:
    """Grid, block, registers and shared memory of a launch, as far as they are known."""
    parts = [f"{label} {_triple(text)}" for label, text in (("grid", grid), ("block", block)) if text]
    parts += [f"{registers} registers"] if registers not in (None, 0) else []
    parts += [f"{shared} B shared"] if shared not in (None, 0) else []
    return ", ".join(parts)


def _triple(text: bytes) -> str:
    return "×".join(part.strip() for part in text.decode("utf-8", "replace").strip("[] \n").split(","))
