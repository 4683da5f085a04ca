"""Reads one large file with two processes. Each reads one half; the child process writes its columns to files."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocsolid.errors import CannotRunError
from rocsolid.process.run_command import module_command
from rocsolid.trace.columns import DeviceEvents, GrowingTable, HostEvents, MemoryEvents, TraceColumns
from rocsolid.trace.readers.bytestream import is_gzip
from rocsolid.trace.readers.c_scanner_build import c_library
from rocsolid.trace.readers.json_events import (
    EventSeparator,
    detect_separator,
    find_first_event,
    first_event_boundary,
    parse_metadata,
)
from rocsolid.trace.readers.kineto import FilePart, read_kineto

# A second process takes a third of a second to start, so smaller files are read by one.
# With the C scanner, one process reads four times as much text in that time.
_MIN_BYTES: Final = 96 << 20
_MIN_BYTES_WITH_SCANNER: Final = 384 << 20
_WINDOW_BYTES: Final = 8 << 20  # text in which the separator is searched

_TABLES: Final[dict[str, Any]] = {
    "device": DeviceEvents,
    "calls": HostEvents,
    "ops": HostEvents,
    "annotations": HostEvents,
    "memory": MemoryEvents,
}
_JSON_FIELDS: Final = (
    "producer",
    "names",
    "launch_configs",
    "threads",
    "details",
    "events",
    "skipped",
    "unused_events",
    "damage",
    "thread_names",
    "metadata",
)
_JSON_FILE: Final = "fields.json"
# Columns of ids, and the strings that the ids refer to.
_ID_COLUMNS: Final = {"name": "names", "launch_config": "launch_configs", "thread": "threads", "detail": "details"}


def read_in_parallel(file: Path) -> TraceColumns:
    """Like `read_kineto`, with two processes when the file is large and not compressed and there are two cores."""
    min_bytes = _MIN_BYTES_WITH_SCANNER if c_library() else _MIN_BYTES
    if (os.cpu_count() or 1) < 2 or is_gzip(file) or file.stat().st_size < min_bytes:  # noqa: PLR2004 - two halves
        return read_kineto(file)
    halves = _halves(file)
    if halves is None:
        return read_kineto(file)
    metadata, first, second = halves
    with tempfile.TemporaryDirectory(prefix="rocsolid-trace-") as folder:
        out = Path(folder)
        child = _start_child(file, second, out)
        try:
            columns = read_kineto(file, first)
            _, stderr = child.communicate()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        if child.returncode != 0:
            msg = f"the child process that read half of {file} exited with {child.returncode}: {stderr.decode()[-300:]}"
            raise CannotRunError(msg)
        joined = join_columns([columns, load_columns(out)])
    return TraceColumns(**{**vars(joined), "metadata": {**metadata, **joined.metadata}})


def _halves(file: Path) -> tuple[dict[str, object], FilePart, FilePart] | None:
    size = file.stat().st_size
    with file.open("rb") as source:
        text = source.read(_WINDOW_BYTES)
        start = find_first_event(text)
        if start is None:
            return None
        separator = detect_separator(text[start:])
        source.seek(size // 2)
        boundary = first_event_boundary(source.read(_WINDOW_BYTES), separator)
    if boundary is None:
        return None
    middle = size // 2 + boundary
    # The first half ends after an event, without the comma that follows it.
    end = middle - len(separator.comma)
    return (
        parse_metadata(text[:start], b"")[0],
        FilePart(first=start, last=end, separator=separator, has_list_end=False),
        FilePart(first=middle, last=None, separator=separator, has_list_end=True),
    )


def _start_child(file: Path, part: FilePart, out: Path) -> "subprocess.Popen[bytes]":
    separator = json.dumps({name: value.decode("latin-1") for name, value in asdict(part.separator).items()})
    return subprocess.Popen(  # noqa: S603 - this module
        module_command("rocsolid.trace.readers.parallel", str(file), str(part.first), separator, str(out)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def main(file: str, first: str, separator: str, out: str) -> None:
    """In the child process: read the second half and save its columns."""
    values = {name: value.encode("latin-1") for name, value in json.loads(separator).items()}
    part = FilePart(first=int(first), last=None, separator=EventSeparator(**values), has_list_end=True)
    save_columns(read_kineto(Path(file), part), Path(out))


def save_columns(columns: TraceColumns, folder: Path) -> None:
    """Write one file per column, and the other fields as JSON."""
    for table, kind in _TABLES.items():
        for f in fields(kind):
            np.save(folder / f"{table}.{f.name}.npy", getattr(getattr(columns, table), f.name), allow_pickle=False)
    (folder / _JSON_FILE).write_text(
        json.dumps({name: getattr(columns, name) for name in _JSON_FIELDS}), encoding="utf-8"
    )


def load_columns(folder: Path) -> TraceColumns:
    """Load the columns that `save_columns` wrote. They are memory-mapped, so they are read only when they are used."""
    tables = {
        table: kind(
            **{
                f.name: np.load(folder / f"{table}.{f.name}.npy", mmap_mode="r", allow_pickle=False)
                for f in fields(kind)
            }
        )
        for table, kind in _TABLES.items()
    }
    values_json = json.loads((folder / _JSON_FILE).read_text(encoding="utf-8"))
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values_json.items()
    }
    return TraceColumns(**tables, **values)


def join_columns(parts: Sequence[TraceColumns]) -> TraceColumns:
    """Join the parts of one file. To save memory, the columns of the first part are extended in place."""
    ids: dict[str, dict[str, int]] = {kind: {} for kind in _ID_COLUMNS.values()}
    new_ids = [
        {
            kind: np.array([known.setdefault(value, len(known)) for value in getattr(part, kind)], dtype=np.int32)
            for kind, known in ids.items()
        }
        for part in parts
    ]
    tables: dict[str, Any] = {
        table: _concatenate(kind, [_renumbered(getattr(p, table), n) for p, n in zip(parts, new_ids, strict=True)])
        for table, kind in _TABLES.items()
    }
    strings: dict[str, Any] = {kind: tuple(known) for kind, known in ids.items()}
    unused: dict[str, int] = {}
    for part in parts:
        for name, count in part.unused_events.items():
            unused[name] = unused.get(name, 0) + count
    return TraceColumns(
        producer=parts[0].producer,
        events=sum(p.events for p in parts),
        skipped=sum(p.skipped for p in parts),
        unused_events=unused,
        damage=tuple(d for p in parts for d in p.damage),
        thread_names={thread: name for p in parts for thread, name in p.thread_names.items()},
        metadata={name: value for p in parts for name, value in p.metadata.items()},
        **strings,
        **tables,
    )


def _concatenate(kind: Any, tables: Sequence[Any]) -> Any:  # noqa: ANN401 - one of three kinds of table
    first, *others = tables
    growing = GrowingTable(kind, first)
    for table in others:
        growing.add(table)
    return growing.finish()


def _renumbered(table: Any, new_ids: dict[str, Any]) -> Any:  # noqa: ANN401 - one of three kinds of table
    present = {f.name for f in fields(table)} & set(_ID_COLUMNS)
    if not len(table):
        return table
    return replace(table, **{name: new_ids[_ID_COLUMNS[name]][getattr(table, name)] for name in present})


if __name__ == "__main__":
    main(*sys.argv[1:])
