"""Reads events into columns with the C scanner. It reads only well-formed text with values of the usual types."""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from rocsolid.trace.columns import Column, DeviceEvents, HostEvents, IdTable
from rocsolid.trace.readers.c_scanner_build import Array
from rocsolid.trace.readers.event_decoder import DECODER, DEVICE_CATEGORIES, HOST_CATEGORIES
from rocsolid.trace.readers.kineto_columns import KinetoColumnBuilder

# These must match the enums and the row struct in scan/scan.c.
_TABLES: Final = ("device", "calls", "ops", "annotations")
_NAMES, _LAUNCH_CONFIGS, _THREADS, _DETAILS, _CATEGORIES = range(5)
_INT64_COLUMNS: Final = ("start", "end", "correlation", "external", "device", "stream", "bytes")
_ROW: Final = np.dtype(
    [*((name, np.int64) for name in _INT64_COLUMNS), ("name", "i4"), ("other", "i4"), ("detail", "i4"), ("kind", "i4")]
)
_SPAN: Final = np.dtype((np.uintp, 2))
_UNKNOWN: Final = -(2**63)
_FLUSH_ROWS: Final = 4096  # rows that the scanner holds before they are added to the columns
# After this many failed texts in a row, reading in Python alone is faster.
_MAX_FAILURES: Final = 8


class Scanner:
    """Reads the text of events into a column builder."""

    def __init__(self, library: ctypes.CDLL, builder: KinetoColumnBuilder) -> None:
        self._library, self._builder = library, builder
        self._handle = library.scanner_new()
        if not self._handle:
            raise MemoryError
        weakref.finalize(self, library.scanner_free, self._handle)
        used = [(category, 0, int(kind)) for category, kind in DEVICE_CATEGORIES.items()]
        used += [(category, _TABLES.index(table), 0) for category, table in HOST_CATEGORIES.items()]
        for category, table, kind in used:
            library.scanner_add_category(self._handle, category.encode(), table, kind)
        self._ids = {
            _NAMES: _IdMap(builder.names, bytes.decode),
            _LAUNCH_CONFIGS: _IdMap(builder.launch_configs, _launch_config),
            _THREADS: _IdMap(builder.threads, _thread),
            _DETAILS: _IdMap(builder.details, bytes),
        }
        self._failures = 0

    @property
    def failing(self) -> bool:
        """Whether the scanner has failed on this file so often that it should not be used any more."""
        return self._failures >= _MAX_FAILURES

    def read(self, text: bytes, end: int) -> bool:
        """Read the events up to `end`. Return False when something is unusual; then none of them is read."""
        if self._scan(text, end):
            self._failures = 0
            if (
                sum(self._library.scanner_rows(self._handle, table).count for table in range(len(_TABLES)))
                >= _FLUSH_ROWS
            ):
                self.flush()
            return True
        self._failures += 1
        self.flush()  # the caller now adds this text to the columns, after what was read before
        return False

    def _scan(self, text: bytes, end: int) -> bool:
        if not self._library.scanner_is_ascii(text, end) and not _is_utf8(text[:end]):
            return False
        if not self._library.scanner_read(self._handle, text, end, len(text)):
            return False
        unread_events = _view(self._library.scanner_unread_events(self._handle), _SPAN).tolist()
        try:
            if unread_events:
                parts = b",".join(text[start:stop] for start, stop in unread_events)
                self._builder.add(DECODER.decode(b"[" + parts + b"]"))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._library.scanner_undo(self._handle)
            return False
        return True

    def flush(self) -> None:
        """Add everything read so far to the column builder."""
        library, builder = self._library, self._builder
        for index, table in enumerate(_TABLES):
            rows = _view(library.scanner_rows(self._handle, index), _ROW)
            if len(rows):
                builder.events += len(rows)
                getattr(builder, table).add(self._device_events(rows) if table == "device" else self._host_events(rows))
        counts = _view(library.scanner_categories(self._handle), np.dtype(np.int64))
        if counts.any():
            categories = self._strings(_CATEGORIES, 0)
            for index in np.flatnonzero(counts).tolist():
                builder.add_unused(categories[index].decode(), int(counts[index]))
        phases = _view(library.scanner_phases(self._handle), np.dtype(np.int64))
        for character in np.flatnonzero(phases).tolist():
            builder.add_unused(f"phase {chr(character)}", int(phases[character]))
        library.scanner_clear(self._handle)

    def _device_events(self, rows: Column) -> DeviceEvents:
        return DeviceEvents(
            **{name: rows[name].copy() for name in _INT64_COLUMNS if name != "device"},
            device=rows["device"].astype(np.int32),
            kind=rows["kind"].astype(np.uint8),
            name=self._builder_ids(_NAMES, rows["name"]),
            launch_config=self._builder_ids(_LAUNCH_CONFIGS, rows["other"]),
            detail=self._builder_ids(_DETAILS, rows["detail"]),
        )

    def _host_events(self, rows: Column) -> HostEvents:
        return HostEvents(
            **{name: rows[name].copy() for name in ("start", "end", "correlation", "external")},
            name=self._builder_ids(_NAMES, rows["name"]),
            thread=self._builder_ids(_THREADS, rows["other"]),
            detail=self._builder_ids(_DETAILS, rows["detail"]),
        )

    def _builder_ids(self, which: int, scanner_ids: Column) -> Column:
        """Return the builder's ids for ids of the scanner. `which` is the string table, such as `_NAMES`."""
        id_map = self._ids[which]
        if int(scanner_ids.max()) >= len(id_map.builder_ids):
            id_map.add(self._strings(which, len(id_map.builder_ids)))
        return id_map.builder_ids[scanner_ids]

    def _strings(self, which: int, first: int) -> list[bytes]:
        """Return the strings of a table from the id `first` on."""
        ends = _view(self._library.scanner_string_ends(self._handle, which), np.dtype(np.uintp)).tolist()
        characters = self._library.scanner_characters(self._handle, which)
        starts = [0, *ends][first : len(ends)]
        return [
            ctypes.string_at(characters.address + start, end - start)
            for start, end in zip(starts, ends[first:], strict=True)
        ]


class _IdMap:
    """Maps the scanner's ids of strings to the builder's ids."""

    def __init__(self, table: IdTable, parse: Callable[[bytes], Any]) -> None:
        self.builder_ids = np.empty(0, dtype=np.int32)
        self._table, self._parse = table, parse

    def add(self, strings: list[bytes]) -> None:
        ids = [self._table[self._parse(string)] for string in strings]
        self.builder_ids = np.append(self.builder_ids, np.array(ids, dtype=np.int32))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _launch_config(key: bytes) -> tuple[bytes, bytes, int | None, int | None]:
    registers, shared = np.frombuffer(key[:16], dtype=np.int64).tolist()
    grid, _, block = key[16:].partition(b"\0")
    return grid, block, _known(registers), _known(shared)


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number


def _thread(key: bytes) -> tuple[int, int]:
    pid, tid = np.frombuffer(key, dtype=np.int64).tolist()
    return pid, tid


def _view(array: Array, kind: "np.dtype[Any]") -> Column:
    """Return an array of the scanner without a copy. It is valid until the scanner is called again."""
    if not array.count:
        return np.empty(0, dtype=kind)
    return np.frombuffer((ctypes.c_char * (array.count * kind.itemsize)).from_address(array.address), dtype=kind)
