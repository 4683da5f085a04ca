"""Studies on disk: SQLite, one row a trial, written as soon as it ends. A kill loses the running trial and nothing else."""

import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, encode
from rocsolid.model.study import TrialRecord

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS studies (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, workload TEXT NOT NULL,
    begun TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS trials (study INTEGER NOT NULL REFERENCES studies(id), number INTEGER NOT NULL,
    name TEXT NOT NULL, owner TEXT NOT NULL, record TEXT, UNIQUE (study, name), UNIQUE (study, number));
"""
_VERSION: Final = 0x7263_7431  # in the file's header: ours, first version


class Store:
    """The trials of one study; several processes may work on it, and no variant is tried twice."""

    def __init__(self, file: Path, key: str, workload: str) -> None:
        self.file = file
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(file, timeout=30, isolation_level=None)
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version != _VERSION and tables:
                msg = f"{file} is a database, but no study of rocsolid's; it is left as it is"
                raise InputError(msg)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
            self._db.execute("INSERT OR IGNORE INTO studies (key, workload) VALUES (?, ?)", (key, workload))
            (self._study,) = self._db.execute("SELECT id FROM studies WHERE key = ?", (key,)).fetchone()
        except (sqlite3.Error, OSError) as broken:
            msg = f"cannot keep the study in {file}: {broken}"
            raise InputError(msg) from broken

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    def done(self) -> list[TrialRecord]:
        """Trials that have ended, in order."""
        rows = self._db.execute(
            "SELECT record FROM trials WHERE study = ? AND record IS NOT NULL ORDER BY number", (self._study,)
        )
        return [decode(TrialRecord, json.loads(text), str(self.file)) for (text,) in rows]

    def claim(self, name: str) -> int | None:
        """The number of a new trial; None when somebody has this variant already."""
        self._forget_the_dead()
        with self._writing():
            (number,) = self._db.execute(
                "SELECT coalesce(max(number), 0) + 1 FROM trials WHERE study = ?", (self._study,)
            ).fetchone()
            made = self._db.execute(
                "INSERT OR IGNORE INTO trials (study, number, name, owner) VALUES (?, ?, ?, ?)",
                (self._study, number, name, _me()),
            )
            return int(number) if made.rowcount else None

    def keep(self, record: TrialRecord) -> None:
        """A trial has ended."""
        self._db.execute(
            "UPDATE trials SET record = ? WHERE study = ? AND number = ?",
            (json.dumps(encode(record)), self._study, record.number),
        )

    def give_up(self, number: int) -> None:
        """A trial was called off: it may be tried again."""
        self._db.execute("DELETE FROM trials WHERE study = ? AND number = ? AND record IS NULL", (self._study, number))

    def forget(self) -> None:
        """Begin anew."""
        self._db.execute("DELETE FROM trials WHERE study = ?", (self._study,))

    def _forget_the_dead(self) -> None:
        """Trials whose tuner was killed on this machine are free again."""
        running = self._db.execute(
            "SELECT number, owner FROM trials WHERE study = ? AND record IS NULL", (self._study,)
        ).fetchall()
        for number, owner in running:
            host, _, pid = str(owner).rpartition(":")
            if host == socket.gethostname() and not Path(f"/proc/{pid}").exists():
                self.give_up(number)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _me() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
