"""The graphs of one captured function: found by key, limited in number and in memory, the least used given up first."""

from collections.abc import Hashable, Iterator
from typing import Any

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.entry import Entry


class Store:
    """Entries by key. Changed only under the capture lock; looked up without."""

    def __init__(self, max_graphs: int, budget_bytes: int | None) -> None:
        self._max = max_graphs
        self._budget = budget_bytes
        self._entries: dict[Hashable, Entry] = {}
        self._clock = 0
        self.newest: Entry | None = None  # the one used last
        self.evictions = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> Entry | None:
        """The entry, marked as used now."""
        entry = self._entries.get(key)
        if entry is not None:
            self.touch(entry)
        return entry

    def touch(self, entry: Entry) -> None:
        """Mark as used now."""
        self._clock += 1
        entry.used = self._clock
        self.newest = entry

    @property
    def bytes(self) -> int:
        """Memory of all entries."""
        return sum(entry.bytes for entry in self)

    def make_room(self, wanted_bytes: int) -> list[Entry]:
        """Take out what must go before one more is captured; raises CannotCapture when even an empty store is too small."""
        if self._max == 0:
            raise CannotCapture(Reason.LIMIT, "max_graphs=0: nothing is captured")
        if self._budget is not None and wanted_bytes > self._budget:
            raise CannotCapture(Reason.MEMORY, self._too_much(wanted_bytes))
        gone = []
        while self._entries and (len(self._entries) >= self._max or self._over(wanted_bytes)):
            gone.append(self._drop_oldest())
        return gone

    def add(self, entry: Entry) -> list[Entry]:
        """Keep a new entry, and take out others when it turned out larger than thought."""
        if self._budget is not None and entry.bytes > self._budget:
            raise CannotCapture(Reason.MEMORY, self._too_much(entry.bytes))
        gone = []
        while self._entries and self._over(entry.bytes):
            gone.append(self._drop_oldest())
        self._entries[entry.key] = entry
        self.touch(entry)
        return gone

    def drop(self, entry: Entry) -> bool:
        """Take one out; whether it was there."""
        if self._entries.get(entry.key) is not entry:
            return False
        self._remove(entry)
        return True

    def clear(self) -> list[Entry]:
        """Take all out."""
        gone = list(self._entries.values())
        self._entries, self.newest = {}, None
        return gone

    def _over(self, wanted: int) -> bool:
        return self._budget is not None and self.bytes + wanted > self._budget

    def _drop_oldest(self) -> Entry:
        oldest = min(self._entries.values(), key=lambda entry: entry.used)
        self._remove(oldest)
        self.evictions += 1
        return oldest

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        if self.newest is entry:
            self.newest = None

    def _too_much(self, wanted: int) -> str:
        budget: Any = self._budget
        return f"the graph would hold {wanted / 2**20:.1f} MiB, and memory_budget_bytes allows {budget / 2**20:.1f} MiB"
