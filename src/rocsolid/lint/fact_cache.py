"""A cache of what the linter extracted from each file (its facts), by the file's content.

If the cache cannot be read or written, linting works without it and takes longer.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.lint.facts import FileFacts, decode_facts
from rocsolid.measure.database import open_database, require_tables
from rocsolid.measure.user_cache import cache_folder, open_folder
from rocsolid.version import __version__

_TABLE: Final = "CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, summary TEXT, symbols TEXT) WITHOUT ROWID"
_MAX_ROWS: Final = 60_000
_MAX_PROJECTS: Final = 50


def default_path(root: Path) -> Path:
    """The cache of a project, in the user's folder: one in the project may come from anybody."""
    return cache_folder("lint") / f"{hashlib.blake2b(os.fsencode(root.absolute()), digest_size=8).hexdigest()}.db"


def cache_key(data: bytes, module: str) -> str:
    """Return a hash of the file's content, its module name, and the version of the rules."""
    return hashlib.blake2b(data, digest_size=16, salt=_rules_digest(), person=_module_digest(module)).hexdigest()


@cache
def _module_digest(module: str) -> bytes:
    return hashlib.blake2b(module.encode(), digest_size=16).digest()


@cache
def _rules_digest() -> bytes:
    """Return a hash that changes with every edit of the rules or the linter, also between releases."""
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(__version__.encode(), digest_size=16)
    for folder in ("lint", "rules/source", "catalog", "torchapi"):
        for file in sorted((package / folder).rglob("*")):
            if file.suffix in (".py", ".json"):
                stat = file.stat()
                digest.update(f"{file.name}{stat.st_size}{stat.st_mtime_ns}".encode())
    return digest.digest()


def load(path: Path | None, keys: Iterable[str]) -> dict[str, FileFacts]:
    """Return the cached facts by key."""
    wanted = set(keys)
    if path is None or not path.is_file():
        return {}
    try:
        with open_folder(path.parent), open_database(path, "a cache") as db:
            require_tables(db, path, "a cache", "facts")
            return {
                key: decode_facts(summary, symbols)
                for key, summary, symbols in db.execute("SELECT key, summary, symbols FROM facts")
                if key in wanted
            }
    except OSError:
        return {}
    except (InputError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        with contextlib.suppress(OSError):
            path.unlink()  # corrupt; created again by the next save
        return {}


def save(path: Path | None, rows: Mapping[str, tuple[str, str]]) -> None:
    """Store the two parts of the facts by key; a cache with too many rows is emptied first."""
    if path is None or not rows:
        return
    with contextlib.suppress(sqlite3.Error, OSError), open_folder(path.parent, create=True):
        if not path.exists():
            _delete_oldest(path.parent)
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as db, db:
            db.execute("PRAGMA synchronous=OFF")
            db.execute(_TABLE)
            (count,) = db.execute("SELECT count(*) FROM facts").fetchone()
            if count > _MAX_ROWS:
                db.execute("DELETE FROM facts")
            db.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", [(key, *parts) for key, parts in rows.items()]
            )


def _delete_oldest(folder: Path) -> None:
    """Make room for one more project."""
    files = sorted(folder.glob("*.db"), key=lambda file: file.stat().st_mtime)
    for file in files[: -_MAX_PROJECTS + 1]:
        file.unlink()
