"""Open SQLite files of others: read-only, with limits, and with an end in sight."""

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError

_BASE_LIMIT_S: Final = 8.0
_LIMIT_S_PER_MB: Final = 2.0
_CHECK_EVERY: Final = 50_000  # instructions of SQLite's virtual machine
_MAX_VALUE_BYTES: Final = 64 << 20
_WAIT_FOR_LOCK_S: Final = 5.0


@contextmanager
def open_database(file: Path, what: str) -> Iterator[sqlite3.Connection]:
    """Open a file for reading. Whatever SQLite finds wrong is raised as InputError; `what` is what the file should be.

    A query that does not end is ended: a view can be endless, and a join of two small tables enormous.
    """
    try:
        limit_s = _BASE_LIMIT_S + _LIMIT_S_PER_MB * file.stat().st_size / 1e6
        end = time.monotonic() + limit_s
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=_WAIT_FOR_LOCK_S)
    except (OSError, ValueError, sqlite3.Error) as error:
        msg = f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
        raise InputError(msg) from error
    try:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.set_progress_handler(lambda: time.monotonic() > end, _CHECK_EVERY)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        yield connection
    except sqlite3.Error as error:
        msg = f"{file}: {_reason(error, what, limit_s)}"
        raise InputError(msg) from error
    except (OverflowError, MemoryError, UnicodeDecodeError) as error:
        msg = f"{file} is not {what}, or it is damaged ({type(error).__name__}: {error})"
        raise InputError(msg) from error
    finally:
        connection.close()


def require_tables(connection: sqlite3.Connection, file: Path, what: str, *names: str) -> None:
    """Raise InputError unless these are tables; a view would run a query of somebody else."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables = {name for (name,) in rows}
    missing = [name for name in names if name not in tables]
    if missing:
        msg = f"{file} is not {what}: it has no table {', '.join(missing)}"
        raise InputError(msg)


def refuse_triggers(connection: sqlite3.Connection, file: Path, what: str) -> None:
    """Raise InputError if rows that are written would run a program of somebody else, which may never end."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchone()
    if found:
        msg = f"{file} is not {what}: it contains the trigger {found[0]!r}; the file was not changed"
        raise InputError(msg)


def _reason(error: sqlite3.Error, what: str, limit_s: float) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return "another program is using it and has locked it; try again when that has ended"
    if "interrupted" in text:
        return f"this is not {what}: reading it takes longer than {limit_s:.0f} s"
    return f"this is not {what}, or it is damaged ({text[:200]}); the file was not changed"
