"""Where a study is kept: in a file beside the workload, or in a PostgreSQL that many machines share."""

from pathlib import Path
from typing import Final, Protocol

from rocsolid.model.study import TrialRecord
from rocsolid.tune.file_store import FileStore
from rocsolid.tune.shared_store import SharedStore

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


def shared(where: str | Path) -> bool:
    """Whether that is the address of a server."""
    return str(where).startswith(_SHARED)


def open_store(where: str | Path, key: str, workload: str) -> Store:
    """The study of that key; raises InputError for a file or a server that cannot keep it."""
    if shared(where):
        return SharedStore(str(where), key, workload)
    return FileStore(Path(where), key, workload)
