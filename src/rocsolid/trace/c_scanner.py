"""Text to columns by the scanner in C, for as long as all that it meets is plain."""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from rocsolid.trace.c_scanner_build import Part
from rocsolid.trace.columns import Column, DeviceEvents, HostEvents
from rocsolid.trace.event_columns import DEVICE, HOST, Gatherer, Words
from rocsolid.trace.skip_python_events import PLAIN

# In the order in which scan/scan.c counts them.
_TABLES: Final = ("device", "calls", "ops", "notes")
_NAMES, _SHAPES, _THREADS, _CATEGORIES = range(4)
_WHOLE: Final = ("start", "end", "correlation", "external", "device", "stream", "bytes")
_ROW: Final = np.dtype([*((name, np.int64) for name in _WHOLE), ("name", "i4"), ("other", "i4"), ("kind", "i8")])
_SPAN: Final = np.dtype((np.uintp, 2))
_UNKNOWN: Final = -(2**63)
_AT_ONCE: Final = 4096
# So many texts that hold something unforeseen, one after another, and Python alone is the shorter way.
_PATIENCE: Final = 8


class Scanner:
    """Reads texts of events into a gatherer."""

    def __init__(self, library: ctypes.CDLL, to: Gatherer) -> None:
        self._library, self._to = library, to
        self._handle = library.scanner_new()
        if not self._handle:
            raise MemoryError
        weakref.finalize(self, library.scanner_free, self._handle)
        kept = [(category, 0, int(kind)) for category, kind in DEVICE.items()]
        kept += [(category, _TABLES.index(table), 0) for category, table in HOST.items()]
        for category, table, kind in kept:
            library.scanner_know(self._handle, category.encode(), table, kind)
        self._numbers = {
            _NAMES: _Numbers(to.names, bytes.decode),
            _SHAPES: _Numbers(to.shapes, _shape),
            _THREADS: _Numbers(to.threads, _thread),
        }
        self._failed = 0

    @property
    def hopeless(self) -> bool:
        """Whether this file is better read without."""
        return self._failed >= _PATIENCE

    def read(self, text: bytes, end: int) -> bool:
        """The events up to `end`; False when they hold anything unforeseen, and then they are for somebody else to read."""
        if self._scan(text, end):
            self._failed = 0
            if sum(self._library.scanner_rows(self._handle, table).count for table in range(len(_TABLES))) >= _AT_ONCE:
                self.hand_over()
            return True
        self._failed += 1
        self.hand_over()  # what comes now comes after it
        return False

    def _scan(self, text: bytes, end: int) -> bool:
        if not self._library.scanner_is_ascii(text, end) and not _is_text(text[:end]):
            return False
        if not self._library.scanner_read(self._handle, text, end, len(text)):
            return False
        others = _view(self._library.scanner_others(self._handle), _SPAN).tolist()
        try:
            if others:
                self._to.take(PLAIN.decode(b"[" + b",".join(text[start:stop] for start, stop in others) + b"]"))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._library.scanner_undo(self._handle)
            return False
        return True

    def hand_over(self) -> None:
        """All that was read so far."""
        library, to = self._library, self._to
        for number, name in enumerate(_TABLES):
            found = _view(library.scanner_rows(self._handle, number), _ROW)
            if len(found):
                to.events += len(found)
                getattr(to, name).add(self._device(found) if name == "device" else self._host(found))
        counts = _view(library.scanner_categories(self._handle), np.dtype(np.int64))
        if counts.any():
            categories = self._words(_CATEGORIES, 0)
            for number in np.flatnonzero(counts).tolist():
                to.leave(categories[number].decode(), int(counts[number]))
        phases = _view(library.scanner_phases(self._handle), np.dtype(np.int64))
        for number in np.flatnonzero(phases).tolist():
            to.leave(f"phase {chr(number)}", int(phases[number]))
        library.scanner_clear(self._handle)

    def _device(self, found: Column) -> DeviceEvents:
        return DeviceEvents(
            **{name: found[name].copy() for name in _WHOLE if name != "device"},
            device=found["device"].astype(np.int32),
            kind=found["kind"].astype(np.uint8),
            name=self._number(_NAMES, found["name"]),
            shape=self._number(_SHAPES, found["other"]),
        )

    def _host(self, found: Column) -> HostEvents:
        return HostEvents(
            **{name: found[name].copy() for name in ("start", "end", "correlation", "external")},
            name=self._number(_NAMES, found["name"]),
            thread=self._number(_THREADS, found["other"]),
        )

    def _number(self, which: int, numbers: Column) -> Column:
        """The gatherer's numbers for the scanner's."""
        known = self._numbers[which]
        if int(numbers.max()) >= len(known.ours):
            known.learn(self._words(which, len(known.ours)))
        return known.ours[numbers]

    def _words(self, which: int, since: int) -> list[bytes]:
        ends = _view(self._library.scanner_ends(self._handle, which), np.dtype(np.uintp)).tolist()
        letters = self._library.scanner_letters(self._handle, which)
        starts = [0, *ends][since : len(ends)]
        return [ctypes.string_at(letters.at + a, b - a) for a, b in zip(starts, ends[since:], strict=True)]


class _Numbers:
    """The gatherer's number for each word of the scanner, in the scanner's order."""

    def __init__(self, words: Words, meaning: Callable[[bytes], Any]) -> None:
        self.ours = np.empty(0, dtype=np.int32)
        self._words, self._meaning = words, meaning

    def learn(self, new: list[bytes]) -> None:
        numbers = [self._words[self._meaning(word)] for word in new]
        self.ours = np.append(self.ours, np.array(numbers, dtype=np.int32))


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shape(word: bytes) -> tuple[bytes, bytes, int | None, int | None]:
    registers, shared = np.frombuffer(word[:16], dtype=np.int64).tolist()
    grid, _, block = word[16:].partition(b"\0")
    return grid, block, _known(registers), _known(shared)


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number


def _thread(word: bytes) -> tuple[int, int]:
    pid, tid = np.frombuffer(word, dtype=np.int64).tolist()
    return pid, tid


def _view(part: Part, kind: "np.dtype[Any]") -> Column:
    """What the scanner holds, until it reads on."""
    if not part.count:
        return np.empty(0, dtype=kind)
    return np.frombuffer((ctypes.c_char * (part.count * kind.itemsize)).from_address(part.at), dtype=kind)
