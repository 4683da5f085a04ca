"""Where a study is stored: in an SQLite file, or in a PostgreSQL database that several machines share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rocsolid.model.study import TrialRecord
from rocsolid.tune.postgres_store import PostgresStore, read_postgres
from rocsolid.tune.sqlite_store import SqliteStore, read_sqlite

_SERVER_SCHEMES: Final = ("postgresql://", "postgres://")


class Store(Protocol):
    """The trials of one study. Several tuners may work on it, and no variant is tried twice."""

    def finished(self) -> list[TrialRecord]:
        """Return the finished trials, in the order of their numbers."""
        ...

    def running(self) -> list[str]:
        """Return the variants that some tuner is trying now, after releasing the trials of tuners that no longer run."""
        ...

    def claim(self, name: str) -> int | None:
        """Reserve a variant; returns the number of the new trial, or None if the variant is finished or running."""
        ...

    def save(self, record: TrialRecord) -> None:
        """Store a finished trial of this tuner; does nothing if another tuner has taken it over meanwhile."""
        ...

    def release(self, number: int) -> None:
        """Remove a cancelled trial of this tuner, so that the variant may be tried again."""
        ...

    def clear(self) -> None:
        """Delete all trials of the study."""
        ...

    def close(self) -> None:
        """Close the file or the connections."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredStudy:
    """One study in a file or a database."""

    key: str
    workload: str
    trials: tuple[TrialRecord, ...]  # the finished ones, in order


def read_studies(source: str | Path) -> list[StoredStudy]:
    """Return all studies in a file or a database; raises InputError if it is not a rocsolid study."""
    rows = read_postgres(str(source)) if is_server_url(source) else read_sqlite(Path(source))
    studies: dict[str, tuple[str, list[TrialRecord]]] = {}
    for key, workload, record in rows:
        _, trials = studies.setdefault(key, (workload, []))
        trials += [record] if record else []
    return [StoredStudy(key=key, workload=name, trials=tuple(trials)) for key, (name, trials) in studies.items()]


def is_server_url(source: str | Path) -> bool:
    """Whether this is the URL of a PostgreSQL server."""
    return str(source).startswith(_SERVER_SCHEMES)


def open_store(source: str | Path, key: str, workload: str) -> Store:
    """Open or create the study with that key; raises InputError if the file or the server cannot be used."""
    if is_server_url(source):
        return PostgresStore(str(source), key, workload)
    return SqliteStore(Path(source), key, workload)
