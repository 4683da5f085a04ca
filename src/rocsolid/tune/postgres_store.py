"""Studies in a PostgreSQL database that several machines share.

Each tuner updates its heartbeat every few seconds, with the server's clock. If a tuner has no recent heartbeat, its running trials
are released, so that other tuners can try them. If that tuner is still running, it can no longer store them, because each trial names
its owner.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from typing import Any, Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError, first_line
from rocsolid.model.codec import decode, encode, parse_json
from rocsolid.model.redact import redact, redact_all
from rocsolid.model.study import TrialRecord

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS rocsolid_studies (id SERIAL PRIMARY KEY, key TEXT UNIQUE NOT NULL, workload TEXT NOT NULL,
    begun TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS rocsolid_tuners (name TEXT PRIMARY KEY, seen TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS rocsolid_trials (study INTEGER NOT NULL REFERENCES rocsolid_studies(id), number INTEGER NOT NULL,
    name TEXT NOT NULL, owner TEXT NOT NULL, record TEXT, UNIQUE (study, name), UNIQUE (study, number));
"""
_CREATE_LOCK: Final = (
    0x726F_6373  # held while the tables are created: two sessions that create them at the same time conflict
)
_HEARTBEAT_S: Final = 3.0
_DEAD_AFTER_S: Final = 30.0
_CONNECT_S: Final = 10


class PostgresStore:
    """The trials of one study on a server."""

    def __init__(
        self,
        url: str,
        key: str,
        workload: str,
        *,
        heartbeat_s: float = _HEARTBEAT_S,
        dead_after_s: float = _DEAD_AFTER_S,
    ) -> None:
        psycopg = _import_psycopg()
        self._owner, self._heartbeat_s, self._dead_after_s = secrets.token_hex(8), heartbeat_s, dead_after_s
        self._db_error = psycopg.Error
        try:
            self._db: Any = psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_S)
            self._heartbeat_db: Any = psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_S)
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
                self._db.execute(_SCHEMA)
                self._db.execute(
                    "INSERT INTO rocsolid_studies (key, workload) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (key, workload),
                )
            (self._study,) = self._db.execute("SELECT id FROM rocsolid_studies WHERE key = %s", (key,)).fetchone()
            self._send_heartbeat()
        except psycopg.Error as error:
            msg = f"cannot store the study in {redact(url)}: {redact(first_line(error))}"
            raise InputError(msg) from error
        self._closed = threading.Event()
        self._heartbeat = threading.Thread(target=self._send_heartbeats, name="rocsolid-study", daemon=True)
        self._heartbeat.start()

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        self._heartbeat.join()
        self._db.close()
        self._heartbeat_db.close()

    def finished(self) -> list[TrialRecord]:
        """Return the finished trials, in the order of their numbers."""
        rows = self._execute(
            "SELECT record FROM rocsolid_trials WHERE study = %s AND record IS NOT NULL ORDER BY number", self._study
        )
        return [decode(TrialRecord, parse_json(text, "the study"), "the study") for (text,) in rows.fetchall()]

    def running(self) -> list[str]:
        """Return the variants that some tuner is trying now, after releasing the trials of tuners that no longer run."""
        self._execute(
            "DELETE FROM rocsolid_trials t WHERE study = %s AND record IS NULL AND NOT EXISTS (SELECT 1 FROM rocsolid_tuners o "
            "WHERE o.name = t.owner AND o.seen > now() - make_interval(secs => %s))",
            self._study,
            self._dead_after_s,
        )
        rows = self._execute("SELECT name FROM rocsolid_trials WHERE study = %s AND record IS NULL", self._study)
        return [name for (name,) in rows.fetchall()]

    def claim(self, name: str) -> int | None:
        """Reserve a variant; returns the number of the new trial, or None if the variant is finished or running."""
        try:
            with self._db.transaction():
                self._db.execute("SELECT id FROM rocsolid_studies WHERE id = %s FOR UPDATE", (self._study,))
                inserted = self._db.execute(
                    "INSERT INTO rocsolid_trials (study, number, name, owner) SELECT %s, coalesce(max(number), 0) + 1, %s, %s "
                    "FROM rocsolid_trials WHERE study = %s ON CONFLICT DO NOTHING RETURNING number",
                    (self._study, name, self._owner, self._study),
                ).fetchone()
        except self._db_error as error:
            raise _connection_lost(error) from error
        return int(inserted[0]) if inserted else None

    def save(self, record: TrialRecord) -> None:
        """Store a finished trial of this tuner; does nothing if another tuner has taken it over meanwhile."""
        self._execute(
            "UPDATE rocsolid_trials SET record = %s WHERE study = %s AND number = %s AND owner = %s AND record IS NULL",
            json.dumps(redact_all(encode(record))),
            self._study,
            record.number,
            self._owner,
        )

    def release(self, number: int) -> None:
        """Remove a cancelled trial of this tuner, so that the variant may be tried again."""
        self._execute(
            "DELETE FROM rocsolid_trials WHERE study = %s AND number = %s AND owner = %s AND record IS NULL",
            self._study,
            number,
            self._owner,
        )

    def clear(self) -> None:
        """Delete all trials of the study."""
        self._execute("DELETE FROM rocsolid_trials WHERE study = %s", self._study)

    def _execute(self, statement: str, *values: object) -> Any:
        try:
            return self._db.execute(statement, values)
        except self._db_error as error:
            raise _connection_lost(error) from error

    def _send_heartbeat(self) -> None:
        self._heartbeat_db.execute(
            "INSERT INTO rocsolid_tuners (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET seen = now()",
            (self._owner,),
        )

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(self._heartbeat_s):
            try:
                self._send_heartbeat()
            except self._db_error:  # the main connection fails too, and raises the error
                return


def read_postgres(url: str) -> Iterator[tuple[str, str, TrialRecord | None]]:
    """Yield key, workload and record of every finished trial; a study without trials is yielded once, with None as record."""
    psycopg = _import_psycopg()
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_S) as db:
            rows = db.execute(
                "SELECT key, workload, record FROM rocsolid_studies LEFT JOIN rocsolid_trials ON study = id ORDER BY id, number"
            ).fetchall()
    except psycopg.Error as error:
        msg = f"cannot read the studies in {redact(url)}: {redact(first_line(error))}"
        raise InputError(msg) from error
    for key, workload, text in rows:
        yield key, workload, decode(TrialRecord, parse_json(text, "the study"), "the study") if text else None


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as missing:
        feature = "storing a study in PostgreSQL"
        raise MissingExtraError(feature, "postgres") from missing
    return psycopg


def _connection_lost(error: Exception) -> CannotRunError:
    return CannotRunError(
        f"lost the connection to the study's database: {redact(first_line(error))}; run the same command again to continue"
    )
