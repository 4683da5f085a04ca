"""Facts of files by their content, kept between runs; a store that cannot be used costs time and nothing else."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from rocsolid.lint.facts import Facts, from_texts
from rocsolid.version import __version__

_FOLDER: Final = Path(".rocsolid")
_TABLE: Final = "CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, head TEXT, body TEXT) WITHOUT ROWID"
_MOST_ROWS: Final = 60_000
_BATCH: Final = 400


def default_store(root: Path) -> Path:
    """Beside the project's pyproject.toml, or where we are."""
    return root / _FOLDER / "lint.db"


def key_of(data: bytes, module: str) -> str:
    """A file's content, its name in Python, and the rules it was read with."""
    return hashlib.blake2b(data, digest_size=16, salt=_rules_digest(), person=_short(module)).hexdigest()


@cache
def _short(module: str) -> bytes:
    return hashlib.blake2b(module.encode(), digest_size=16).digest()


@cache
def _rules_digest() -> bytes:
    """Changes with every change of the rules and of the reader, also between releases."""
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(__version__.encode(), digest_size=16)
    for folder in ("lint", "rules/source", "catalog", "torchapi"):
        for file in sorted((package / folder).rglob("*")):
            if file.suffix in (".py", ".json"):
                stat = file.stat()
                digest.update(f"{file.name}{stat.st_size}{stat.st_mtime_ns}".encode())
    return digest.digest()


def load(store: Path | None, keys: Iterable[str]) -> dict[str, Facts]:
    """What is known, by key."""
    wanted = set(keys)
    if store is None or not store.is_file():
        return {}
    try:
        with contextlib.closing(sqlite3.connect(store, timeout=5)) as db:
            return {
                key: from_texts(head, body) for key, head, body in db.execute("SELECT * FROM facts") if key in wanted
            }
    except (sqlite3.Error, ValueError, KeyError):
        with contextlib.suppress(OSError):
            store.unlink()  # broken; it is made anew
        return {}


def save(store: Path | None, rows: Mapping[str, tuple[str, str]]) -> None:
    """Keep heads and bodies by key; with too many rows the store begins anew."""
    if store is None or not rows:
        return
    with contextlib.suppress(sqlite3.Error, OSError):
        store.parent.mkdir(parents=True, exist_ok=True)
        ignore = store.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        with contextlib.closing(sqlite3.connect(store, timeout=5)) as db, db:
            db.execute("PRAGMA synchronous=OFF")
            db.execute(_TABLE)
            (count,) = db.execute("SELECT count(*) FROM facts").fetchone()
            if count > _MOST_ROWS:
                db.execute("DELETE FROM facts")
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", [(k, h, b) for k, (h, b) in rows.items()])
