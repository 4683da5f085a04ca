"""Columns in files, so that one process can hand them to another, and several shares become one again."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocsolid.trace.columns import Columns, DeviceEvents, Growing, HostEvents, MemoryEvents

_TABLES: Final[dict[str, Any]] = {
    "device": DeviceEvents,
    "calls": HostEvents,
    "ops": HostEvents,
    "notes": HostEvents,
    "memory": MemoryEvents,
}
_PLAIN: Final = (
    "producer",
    "names",
    "shapes",
    "threads",
    "events",
    "skipped",
    "set_aside",
    "damage",
    "thread_names",
    "metadata",
)
_REST: Final = "rest.json"
# Which words the columns of each table stand for.
_WORDS: Final = {"name": "names", "shape": "shapes", "thread": "threads"}


def save(columns: Columns, folder: Path) -> None:
    """Write a file for each column, and the rest as JSON."""
    for table, kind in _TABLES.items():
        for f in fields(kind):
            np.save(folder / f"{table}.{f.name}.npy", getattr(getattr(columns, table), f.name), allow_pickle=False)
    (folder / _REST).write_text(json.dumps({name: getattr(columns, name) for name in _PLAIN}), encoding="utf-8")


def load(folder: Path) -> Columns:
    """The inverse of `save`; a column is read when it is used, and not held."""
    tables = {
        table: kind(
            **{
                f.name: np.load(folder / f"{table}.{f.name}.npy", mmap_mode="r", allow_pickle=False)
                for f in fields(kind)
            }
        )
        for table, kind in _TABLES.items()
    }
    rest = json.loads((folder / _REST).read_text(encoding="utf-8"))
    parts: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in rest.items()}
    return Columns(**tables, **parts)


def join(shares: Sequence[Columns]) -> Columns:
    """The shares of one file as one; the first of them becomes it, since all of them twice is a lot."""
    words: dict[str, dict[str, int]] = {kind: {} for kind in _WORDS.values()}
    numbers = [
        {
            kind: np.array([known.setdefault(word, len(known)) for word in getattr(share, kind)], dtype=np.int32)
            for kind, known in words.items()
        }
        for share in shares
    ]
    tables: dict[str, Any] = {
        table: _below(kind, [_renumbered(getattr(s, table), n) for s, n in zip(shares, numbers, strict=True)])
        for table, kind in _TABLES.items()
    }
    lists: dict[str, Any] = {kind: tuple(known) for kind, known in words.items()}
    aside: dict[str, int] = {}
    for share in shares:
        for name, count in share.set_aside.items():
            aside[name] = aside.get(name, 0) + count
    return Columns(
        producer=shares[0].producer,
        events=sum(s.events for s in shares),
        skipped=sum(s.skipped for s in shares),
        set_aside=aside,
        damage=tuple(d for s in shares for d in s.damage),
        thread_names={thread: name for s in shares for thread, name in s.thread_names.items()},
        metadata={name: value for s in shares for name, value in s.metadata.items()},
        **lists,
        **tables,
    )


def _below(kind: Any, tables: Sequence[Any]) -> Any:  # noqa: ANN401 - one of three kinds of table
    first, *others = tables
    growing = Growing(kind, first)
    for table in others:
        growing.add(table)
    return growing.whole()


def _renumbered(table: Any, numbers: dict[str, Any]) -> Any:  # noqa: ANN401 - one of three kinds of table
    present = {f.name for f in fields(table)} & set(_WORDS)
    if not len(table):
        return table
    return replace(table, **{name: numbers[_WORDS[name]][getattr(table, name)] for name in present})
