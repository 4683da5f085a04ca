"""Where a study is kept: in a file beside the workload, or in a PostgreSQL that many machines share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rocsolid.model.study import TrialRecord
from rocsolid.tune.postgres_store import SharedStore, all_on_server
from rocsolid.tune.sqlite_store import FileStore, all_in_file

_SHARED: Final = ("postgresql://", "postgres://")


class Store(Protocol):
    """The trials of one study; several processes may work on it, and no variant is tried twice."""

    def done(self) -> list[TrialRecord]:
        """Trials that have ended, in order."""
        ...

    def running(self) -> list[str]:
        """Variants that somebody tries now; those of the dead are free again."""
        ...

    def claim(self, name: str) -> int | None:
        """The number of a new trial; None when somebody has this variant already."""
        ...

    def keep(self, record: TrialRecord) -> None:
        """A trial of ours has ended; nothing is kept of one that somebody else has taken over meanwhile."""
        ...

    def give_up(self, number: int) -> None:
        """A trial of ours was called off: it may be tried again."""
        ...

    def forget(self) -> None:
        """Begin anew."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One of the studies that are kept at a place."""

    key: str
    workload: str
    trials: tuple[TrialRecord, ...]  # that have ended, in order


def kept_in(where: str | Path) -> list[Kept]:
    """All studies that are kept there; raises InputError for a place that holds none of ours."""
    rows = all_on_server(str(where)) if shared(where) else all_in_file(Path(where))
    found: dict[str, tuple[str, list[TrialRecord]]] = {}
    for key, workload, record in rows:
        _, trials = found.setdefault(key, (workload, []))
        trials += [record] if record else []
    return [Kept(key=key, workload=name, trials=tuple(trials)) for key, (name, trials) in found.items()]


def shared(where: str | Path) -> bool:
    """Whether that is the address of a server."""
    return str(where).startswith(_SHARED)


def open_store(where: str | Path, key: str, workload: str) -> Store:
    """The study of that key; raises InputError for a file or a server that cannot keep it."""
    if shared(where):
        return SharedStore(str(where), key, workload)
    return FileStore(Path(where), key, workload)
