"""Studies in a file: SQLite, one row a trial, written as soon as it ends. A kill loses the running trial and nothing else.

Each tuner holds a lock on a file of its own beside the study for as long as it lives, and signs its trials with that file's name.
The kernel lets go of the lock when the tuner dies, however it dies. A number of a process would not do: in the next container it
belongs to somebody else.
"""

import fcntl
import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
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


class FileStore:
    """The trials of one study; several processes may work on it, and no variant is tried twice."""

    def __init__(self, file: Path, key: str, workload: str) -> None:
        self.file = file
        self._me = secrets.token_hex(8)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(file, timeout=30, isolation_level=None)
        except (sqlite3.Error, OSError) as broken:
            msg = f"cannot keep the study in {file}: {broken}"
            raise InputError(msg) from broken
        try:
            self._study = self._opened(key, workload)
            self._sign = self._sign_of(self._me).open("w")
            with suppress(OSError):  # a file system without locks: nobody's death is noticed then
                fcntl.flock(self._sign, fcntl.LOCK_EX)
        except (sqlite3.Error, OSError) as broken:
            self._db.close()
            msg = f"cannot keep the study in {file}: {broken}"
            raise InputError(msg) from broken
        except InputError:
            self._db.close()
            raise

    def _opened(self, key: str, workload: str) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != _VERSION and tables:
            msg = f"{self.file} is a database, but no study of rocsolid's; it is left as it is"
            raise InputError(msg)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self._db.execute(f"PRAGMA user_version={_VERSION}")
        self._db.execute("INSERT OR IGNORE INTO studies (key, workload) VALUES (?, ?)", (key, workload))
        (study,) = self._db.execute("SELECT id FROM studies WHERE key = ?", (key,)).fetchone()
        return int(study)

    def close(self) -> None:
        """Give the file back."""
        self._db.close()
        self._sign_of(self._me).unlink(missing_ok=True)
        self._sign.close()

    def done(self) -> list[TrialRecord]:
        """Trials that have ended, in order."""
        rows = self._db.execute(
            "SELECT record FROM trials WHERE study = ? AND record IS NOT NULL ORDER BY number", (self._study,)
        )
        return [decode(TrialRecord, json.loads(text), str(self.file)) for (text,) in rows]

    def running(self) -> list[str]:
        """Variants that somebody tries now."""
        self._forget_the_dead()
        rows = self._db.execute("SELECT name FROM trials WHERE study = ? AND record IS NULL", (self._study,))
        return [name for (name,) in rows]

    def claim(self, name: str) -> int | None:
        """The number of a new trial; None when somebody has this variant already."""
        self._forget_the_dead()
        with self._writing():
            (number,) = self._db.execute(
                "SELECT coalesce(max(number), 0) + 1 FROM trials WHERE study = ?", (self._study,)
            ).fetchone()
            made = self._db.execute(
                "INSERT OR IGNORE INTO trials (study, number, name, owner) VALUES (?, ?, ?, ?)",
                (self._study, number, name, self._me),
            )
            return int(number) if made.rowcount else None

    def keep(self, record: TrialRecord) -> None:
        """A trial has ended; nothing is kept of one that somebody else has taken over meanwhile."""
        self._db.execute(
            "UPDATE trials SET record = ? WHERE study = ? AND number = ? AND owner = ? AND record IS NULL",
            (json.dumps(encode(record)), self._study, record.number, self._me),
        )

    def give_up(self, number: int) -> None:
        """A trial of ours was called off: it may be tried again."""
        self._free(number, self._me)

    def _free(self, number: int, owner: str) -> None:
        self._db.execute(
            "DELETE FROM trials WHERE study = ? AND number = ? AND owner = ? AND record IS NULL",
            (self._study, number, owner),
        )

    def forget(self) -> None:
        """Begin anew."""
        self._db.execute("DELETE FROM trials WHERE study = ?", (self._study,))

    def _forget_the_dead(self) -> None:
        """Trials whose tuner was killed are free again."""
        running = self._db.execute(
            "SELECT number, owner FROM trials WHERE study = ? AND record IS NULL", (self._study,)
        ).fetchall()
        for number, owner in running:
            if owner != self._me and not _held(self._sign_of(owner)):
                self._free(number, owner)
                self._sign_of(owner).unlink(missing_ok=True)

    def _sign_of(self, owner: str) -> Path:
        return self.file.with_name(f"{self.file.name}-{owner}.alive")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def all_in_file(file: Path) -> Iterator[tuple[str, str, TrialRecord | None]]:
    """Key and workload of every study with each of its trials that has ended, or with None; the file is only read."""
    if not file.is_file():
        msg = f"cannot read {file}: there is no such file"
        raise InputError(msg)
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as db:
            rows = db.execute(
                "SELECT key, workload, record FROM studies LEFT JOIN trials ON study = id ORDER BY id, number"
            ).fetchall()
    except sqlite3.Error as broken:
        msg = f"{file} holds no study of rocsolid's: {broken}"
        raise InputError(msg) from broken
    for key, workload, text in rows:
        yield key, workload, decode(TrialRecord, json.loads(text), str(file)) if text else None


def _held(sign: Path) -> bool:
    """Whether somebody still holds the lock on this file; also when that cannot be asked here."""
    try:
        with sign.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
