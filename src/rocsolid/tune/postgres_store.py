"""Studies in a PostgreSQL that several machines share.

Each tuner says every few seconds, by the server's clock, that it lives. The trials of one that has not said so for a while are
free again, and what it still wants to keep of them is refused: they are signed with its name, and are no longer its own.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from typing import Any, Final

from rocsolid.errors import CannotRunError, InputError, MissingExtraError, first_line
from rocsolid.model.codec import decode, encode
from rocsolid.model.study import TrialRecord

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS rocsolid_studies (id SERIAL PRIMARY KEY, key TEXT UNIQUE NOT NULL, workload TEXT NOT NULL,
    begun TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS rocsolid_tuners (name TEXT PRIMARY KEY, seen TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS rocsolid_trials (study INTEGER NOT NULL REFERENCES rocsolid_studies(id), number INTEGER NOT NULL,
    name TEXT NOT NULL, owner TEXT NOT NULL, record TEXT, UNIQUE (study, name), UNIQUE (study, number));
"""
_ONE_AT_A_TIME: Final = 0x726F_6373  # who makes the tables: two that do so at once disturb each other
_BEAT_S: Final = 3.0
_DEAD_S: Final = 30.0  # without a sign of life
_CONNECT_S: Final = 10


class SharedStore:
    """The trials of one study on a server."""

    def __init__(self, url: str, key: str, workload: str, *, beat_s: float = _BEAT_S, dead_s: float = _DEAD_S) -> None:
        psycopg = _driver()
        self._me, self._beat_s, self._dead_s = secrets.token_hex(8), beat_s, dead_s
        self._broken = psycopg.Error
        try:
            self._db: Any = psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_S)
            self._heart: Any = psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_S)
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
                self._db.execute(_SCHEMA)
                self._db.execute(
                    "INSERT INTO rocsolid_studies (key, workload) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (key, workload),
                )
            (self._study,) = self._db.execute("SELECT id FROM rocsolid_studies WHERE key = %s", (key,)).fetchone()
            self._sign_of_life()
        except psycopg.Error as refused:
            msg = f"cannot keep the study in {_without_password(url)}: {first_line(refused)}"
            raise InputError(msg) from refused
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="rocsolid-study", daemon=True)
        self._beating.start()

    def close(self) -> None:
        """Give the connections back."""
        self._over.set()
        self._beating.join()
        self._db.close()
        self._heart.close()

    def done(self) -> list[TrialRecord]:
        """Trials that have ended, in order."""
        rows = self._ask(
            "SELECT record FROM rocsolid_trials WHERE study = %s AND record IS NOT NULL ORDER BY number", self._study
        )
        return [decode(TrialRecord, json.loads(text), "the study") for (text,) in rows.fetchall()]

    def running(self) -> list[str]:
        """Variants that somebody tries now; those of the dead are free again."""
        self._ask(
            "DELETE FROM rocsolid_trials t WHERE study = %s AND record IS NULL AND NOT EXISTS (SELECT 1 FROM rocsolid_tuners o "
            "WHERE o.name = t.owner AND o.seen > now() - make_interval(secs => %s))",
            self._study,
            self._dead_s,
        )
        rows = self._ask("SELECT name FROM rocsolid_trials WHERE study = %s AND record IS NULL", self._study)
        return [name for (name,) in rows.fetchall()]

    def claim(self, name: str) -> int | None:
        """The number of a new trial; None when somebody has this variant already."""
        try:
            with self._db.transaction():
                self._db.execute("SELECT id FROM rocsolid_studies WHERE id = %s FOR UPDATE", (self._study,))
                made = self._db.execute(
                    "INSERT INTO rocsolid_trials (study, number, name, owner) SELECT %s, coalesce(max(number), 0) + 1, %s, %s "
                    "FROM rocsolid_trials WHERE study = %s ON CONFLICT DO NOTHING RETURNING number",
                    (self._study, name, self._me, self._study),
                ).fetchone()
        except self._broken as gone:
            raise _gone(gone) from gone
        return int(made[0]) if made else None

    def keep(self, record: TrialRecord) -> None:
        """A trial of ours has ended; nothing is kept of one that somebody else has taken over meanwhile."""
        self._ask(
            "UPDATE rocsolid_trials SET record = %s WHERE study = %s AND number = %s AND owner = %s AND record IS NULL",
            json.dumps(encode(record)),
            self._study,
            record.number,
            self._me,
        )

    def give_up(self, number: int) -> None:
        """A trial of ours was called off: it may be tried again."""
        self._ask(
            "DELETE FROM rocsolid_trials WHERE study = %s AND number = %s AND owner = %s AND record IS NULL",
            self._study,
            number,
            self._me,
        )

    def forget(self) -> None:
        """Begin anew."""
        self._ask("DELETE FROM rocsolid_trials WHERE study = %s", self._study)

    def _ask(self, question: str, *values: object) -> Any:
        try:
            return self._db.execute(question, values)
        except self._broken as gone:
            raise _gone(gone) from gone

    def _sign_of_life(self) -> None:
        self._heart.execute(
            "INSERT INTO rocsolid_tuners (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET seen = now()", (self._me,)
        )

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                self._sign_of_life()
            except self._broken:  # whoever works on the study will notice too, and say so
                return


def all_on_server(url: str) -> Iterator[tuple[str, str, TrialRecord | None]]:
    """Key and workload of every study with each of its trials that has ended, or with None."""
    psycopg = _driver()
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_S) as db:
            rows = db.execute(
                "SELECT key, workload, record FROM rocsolid_studies LEFT JOIN rocsolid_trials ON study = id ORDER BY id, number"
            ).fetchall()
    except psycopg.Error as refused:
        msg = f"cannot read the studies in {_without_password(url)}: {first_line(refused)}"
        raise InputError(msg) from refused
    for key, workload, text in rows:
        yield key, workload, decode(TrialRecord, json.loads(text), "the study") if text else None


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as missing:
        feature = "a study that is kept in PostgreSQL"
        raise MissingExtraError(feature, "postgres") from missing
    return psycopg


def _gone(error: Exception) -> CannotRunError:
    return CannotRunError(
        f"the server that keeps the study is gone: {first_line(error)}; the same command goes on from there"
    )


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.rpartition(':')[0] if head.count(':') > 1 else head}{at}{tail}"
