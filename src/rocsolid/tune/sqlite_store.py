"""Studies in an SQLite file, one row per trial, written as soon as the trial ends. A kill loses only the running trial.

Each tuner has its own lock file next to the study, and marks its trials with the name of that file. It holds the lock while it runs.
When it ends, even by SIGKILL, the kernel releases the lock, and other tuners see that its trials are free. A process id would not
work: in another container, the same id belongs to a different process.
"""

import fcntl
import json
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.measure.database import open_database, refuse_triggers, require_tables
from rocsolid.model.codec import decode, encode, parse_json
from rocsolid.model.redact import redact_all
from rocsolid.model.study import TrialRecord

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS studies (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, workload TEXT NOT NULL,
    begun TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS trials (study INTEGER NOT NULL REFERENCES studies(id), number INTEGER NOT NULL,
    name TEXT NOT NULL, owner TEXT NOT NULL, record TEXT, UNIQUE (study, name), UNIQUE (study, number));
"""
_WHAT: Final = "a rocsolid study"
_OWNER: Final = re.compile(r"[0-9a-f]{16}")
_VERSION: Final = 0x7263_7431  # `user_version` in the file's header: marks a rocsolid study, format version 1


class SqliteStore:
    """The trials of one study in a file. Several processes may work on it, and no variant is tried twice."""

    def __init__(self, file: Path, key: str, workload: str) -> None:
        self.file = file
        self._owner = secrets.token_hex(8)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(file, timeout=30, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            msg = f"cannot store the study in {file}: {error}"
            raise InputError(msg) from error
        try:
            self._study = self._open_study(key, workload)
            self._lock = self._lock_file(self._owner).open("w")
            with suppress(OSError):  # on a file system without locks, trials of a killed tuner are not released
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        except (sqlite3.Error, OSError) as error:
            self._db.close()
            msg = f"cannot store the study in {file}: {error}"
            raise InputError(msg) from error
        except InputError:
            self._db.close()
            raise

    def _open_study(self, key: str, workload: str) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != _VERSION and tables:
            msg = f"{self.file} is a database of another program, not a rocsolid study; it was not changed"
            raise InputError(msg)
        refuse_triggers(self._db, self.file, _WHAT)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self._db.execute(f"PRAGMA user_version={_VERSION}")
        self._db.execute("INSERT OR IGNORE INTO studies (key, workload) VALUES (?, ?)", (key, workload))
        (study,) = self._db.execute("SELECT id FROM studies WHERE key = ?", (key,)).fetchone()
        return int(study)

    def close(self) -> None:
        """Close the file and release the lock."""
        self._db.close()
        self._lock_file(self._owner).unlink(missing_ok=True)
        self._lock.close()

    def finished(self) -> list[TrialRecord]:
        """Return the finished trials, in the order of their numbers."""
        rows = self._db.execute(
            "SELECT record FROM trials WHERE study = ? AND record IS NOT NULL ORDER BY number", (self._study,)
        )
        return [decode(TrialRecord, parse_json(text, str(self.file)), str(self.file)) for (text,) in rows]

    def running(self) -> list[str]:
        """Return the variants that some tuner is trying now, after releasing the trials of tuners that no longer run."""
        self._release_dead_owners()
        rows = self._db.execute("SELECT name FROM trials WHERE study = ? AND record IS NULL", (self._study,))
        return [name for (name,) in rows]

    def claim(self, name: str) -> int | None:
        """Reserve a variant; returns the number of the new trial, or None if the variant is finished or running."""
        self._release_dead_owners()
        with self._transaction():
            (number,) = self._db.execute(
                "SELECT coalesce(max(number), 0) + 1 FROM trials WHERE study = ?", (self._study,)
            ).fetchone()
            inserted = self._db.execute(
                "INSERT OR IGNORE INTO trials (study, number, name, owner) VALUES (?, ?, ?, ?)",
                (self._study, number, name, self._owner),
            )
            return int(number) if inserted.rowcount else None

    def save(self, record: TrialRecord) -> None:
        """Store a finished trial of this tuner; does nothing if another tuner has taken it over meanwhile."""
        self._db.execute(
            "UPDATE trials SET record = ? WHERE study = ? AND number = ? AND owner = ? AND record IS NULL",
            (json.dumps(redact_all(encode(record))), self._study, record.number, self._owner),
        )

    def release(self, number: int) -> None:
        """Remove a cancelled trial of this tuner, so that the variant may be tried again."""
        self._delete_running(number, self._owner)

    def _delete_running(self, number: int, owner: str) -> None:
        self._db.execute(
            "DELETE FROM trials WHERE study = ? AND number = ? AND owner = ? AND record IS NULL",
            (self._study, number, owner),
        )

    def clear(self) -> None:
        """Delete all trials of the study."""
        self._db.execute("DELETE FROM trials WHERE study = ?", (self._study,))

    def _release_dead_owners(self) -> None:
        """Release the running trials of tuners that were killed."""
        running = self._db.execute(
            "SELECT number, owner FROM trials WHERE study = ? AND record IS NULL", (self._study,)
        ).fetchall()
        for number, owner in running:
            if not _OWNER.fullmatch(str(owner)):  # not written by a tuner, and no part of a file name
                self._delete_running(number, owner)
            elif owner != self._owner and not _is_locked(self._lock_file(owner)):
                self._delete_running(number, owner)
                self._lock_file(owner).unlink(missing_ok=True)

    def _lock_file(self, owner: str) -> Path:
        return self.file.with_name(f"{self.file.name}-{owner}.alive")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def read_sqlite(file: Path) -> Iterator[tuple[str, str, TrialRecord | None]]:
    """Yield key, workload and record of every finished trial; a study without trials is yielded once, with None as record. Changes nothing."""
    if not file.is_file():
        msg = f"cannot read {file}: no such file"
        raise InputError(msg)
    with open_database(file, _WHAT) as db:
        require_tables(db, file, _WHAT, "studies", "trials")
        rows = db.execute(
            "SELECT key, workload, record FROM studies LEFT JOIN trials ON study = id ORDER BY id, number"
        ).fetchall()
    for key, workload, text in rows:
        if not isinstance(key, str) or not isinstance(workload, str):
            msg = f"{file} is not {_WHAT}: a key and a workload must be text"
            raise InputError(msg)
        yield key, workload, decode(TrialRecord, parse_json(text, str(file)), str(file)) if text else None


def _is_locked(file: Path) -> bool:
    """Whether a process holds the lock on this file; True also where locks do not work."""
    try:
        with file.open("r") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
