"""The ledger: one SQLite file with the probes of container images.

The file is checked before it is opened for writing. If it is not a ledger, is damaged or was written by a newer rocsolid,
it is not changed, and InputError is raised.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from rocsolid.catalog.images import IMAGES
from rocsolid.errors import InputError, UnknownNameError
from rocsolid.measure.database import open_database, refuse_triggers, require_tables
from rocsolid.model.codec import decode, encode, parse_json
from rocsolid.model.redact import redact_all
from rocsolid.model.saved_probe import ImageEntry

_APPLICATION_ID: Final = 0x526F4C64  # "RoLd": SQLite stores it in the header of the file, which marks it as a ledger
_FORMAT_VERSION: Final = 1
_WHAT: Final = "a ledger"
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_TABLE: Final = """
CREATE TABLE entry (
    image TEXT NOT NULL,
    digest TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    source TEXT NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (image, digest, recorded_at)
)
"""


def default_file() -> Path:
    """The path of the ledger: `$ROCSOLID_LEDGER`, or a file in the user's data folder."""
    if path := os.environ.get("ROCSOLID_LEDGER"):
        return Path(path)
    try:
        data_folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    except RuntimeError as homeless:
        msg = "this user has no home folder for the ledger: set ROCSOLID_LEDGER to a file, or use --ledger FILE"
        raise InputError(msg) from homeless
    return Path(data_folder) / "rocsolid/ledger.db"


class Ledger:
    """The probed images, and the claims of public guides about images that were not probed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if file.exists():
            _require_ledger(file)

    def entries(self) -> list[ImageEntry]:
        """The probed images, oldest first, then the claims about images that were not probed."""
        probed = list(self._rows())
        probed_images = {entry.image for entry in probed}
        return [*probed, *(claim for claim in IMAGES if claim.image not in probed_images)]

    def find(self, name: str) -> ImageEntry:
        """The newest entry of an image, by its tag, digest or image fingerprint; raises UnknownNameError."""
        entries = self.entries()
        for entry in reversed(entries):
            if name in (entry.image, entry.digest, entry.key):
                return entry
        raise UnknownNameError(kind="image", name=name, known=[e.image for e in entries])

    def add(self, entries: list[ImageEntry]) -> int:
        """Write the entries that are not there yet; return how many were new."""
        with self._write() as database:
            changes_before = database.total_changes
            database.executemany(
                "INSERT OR IGNORE INTO entry VALUES (?, ?, ?, ?, ?)",
                [(e.image, e.digest, e.recorded_at, e.source, json.dumps(encode(e))) for e in redact_all(entries)],
            )
            return database.total_changes - changes_before

    def merge(self, other: "Ledger") -> int:
        """Add the entries of another ledger that this one lacks; return how many were new."""
        return self.add([entry for entry in other.entries() if entry.source != "claim"])

    def _rows(self) -> Iterator[ImageEntry]:
        if not self.file.exists() or self.file.stat().st_size == 0:  # an empty file counts as an empty ledger
            return
        with open_database(self.file, _WHAT) as database:
            require_tables(database, self.file, _WHAT, "entry")
            for (document,) in database.execute("SELECT document FROM entry ORDER BY recorded_at, rowid"):
                yield _parse_entry(document, self.file)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # SQLite would create it readable for everybody.
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            new = not self.file.exists() or self.file.stat().st_size == 0
            with closing(_open(self.file, "rwc")) as database:
                if new:
                    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    database.execute(f"PRAGMA user_version = {_FORMAT_VERSION}")
                    database.execute(_TABLE)
                with database:  # one transaction: all entries or none
                    yield database
        except (OSError, sqlite3.Error) as error:
            msg = f"cannot write the ledger {self.file}: {error}"
            raise InputError(msg) from error


def _open(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode={mode}", uri=True, timeout=30)


def _require_ledger(file: Path) -> None:
    """Raise InputError unless the file is an undamaged ledger."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE_MAGIC))
        if not head:
            return  # an empty file: the first entry makes it a ledger
        if head != _SQLITE_MAGIC:
            raise InputError(_refusal(file, "it is not a SQLite database"))
        with open_database(file, _WHAT) as database:
            application, version = (_pragma(database, name) for name in ("application_id", "user_version"))
            if application != _APPLICATION_ID:
                raise InputError(_refusal(file, "it is the database of another program"))
            if version > _FORMAT_VERSION:
                raise InputError(
                    _refusal(file, f"it has format {version}, and this rocsolid reads formats up to {_FORMAT_VERSION}")
                )
            refuse_triggers(database, file, _WHAT)
            check = database.execute("PRAGMA quick_check").fetchone()[0]
            if check != "ok":
                raise InputError(_refusal(file, f"it is damaged ({check.splitlines()[0]})"))
    except OSError as broken:
        msg = f"cannot read the ledger {file}: {broken.strerror}; the file was not changed"
        raise InputError(msg) from broken


def _pragma(database: sqlite3.Connection, name: str) -> int:
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])


def _refusal(file: Path, why: str) -> str:
    return f"{file} is not a ledger: {why}; the file was not changed"


def _parse_entry(document: object, file: Path) -> ImageEntry:
    if not isinstance(document, str):
        raise InputError(_refusal(file, f"an entry is {type(document).__name__}, not text"))
    return decode(ImageEntry, parse_json(document, f"{file}, an entry"), f"{file}, an entry")
