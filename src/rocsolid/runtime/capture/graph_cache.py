"""The graphs of one captured function, by cache key, and its counters.

The cache is limited in number and memory, and evicts the least recently used graph first.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from textwrap import indent
from typing import Final

from rocsolid.model.capture_report import CaptureReport, Reason, Refusal
from rocsolid.model.log import log as _log
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.entry import Entry

MAX_SHORT_LIVED: Final = 16  # then the call runs in eager: capturing again costs more than the replays gain
_WARN_AFTER_EAGER_CALLS: Final = 100
_MAX_INVALIDATION_REASONS: Final = 20
_EXPECTED_REASONS: Final = (
    Reason.FIRST_CALL,
    Reason.CHECK,
    Reason.EAGER_BACKEND,
)  # eager calls for these reasons are no cause for a warning


class GraphCache:
    """Entries by cache key. Changed only while `capture_lock` is held; looked up without it."""

    def __init__(self, max_graphs: int, budget_bytes: int | None) -> None:
        self._max_graphs = max_graphs
        self._budget_bytes = budget_bytes
        self._entries: dict[Hashable, Entry] = {}
        self._clock = 0  # counts uses, to find the least recently used entry
        self.last_used: Entry | None = None
        self.evictions = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> Entry | None:
        """Return the entry of a key and mark it as the most recently used one; None when there is none."""
        entry = self._entries.get(key)
        if entry is not None:
            self.mark_used(entry)
        return entry

    def mark_used(self, entry: Entry) -> None:
        """Make this the most recently used entry."""
        self._clock += 1
        entry.stats.record_use(self._clock)
        self.last_used = entry

    @property
    def bytes(self) -> int:
        """The memory of all entries."""
        return sum(entry.bytes for entry in self)

    @property
    def replays(self) -> int:
        """The number of replays of the graphs in the cache."""
        return sum(entry.stats.replays for entry in self)

    def make_room(self, needed_bytes: int) -> list[Entry]:
        """Evict entries until another graph fits, and return them. Raises CannotCapture when it would not fit into an empty cache."""
        if self._max_graphs == 0:
            raise CannotCapture(Reason.MAX_GRAPHS, "max_graphs=0 allows no graphs")
        self._refuse_if_too_large(needed_bytes)
        evicted = []
        while self._entries and (len(self._entries) >= self._max_graphs or self._exceeds_budget(needed_bytes)):
            evicted.append(self._evict())
        return evicted

    def add(self, entry: Entry) -> list[Entry]:
        """Add an entry. Evicts others when it is larger than expected, and returns them."""
        self._refuse_if_too_large(entry.bytes)
        evicted = []
        while self._entries and self._exceeds_budget(entry.bytes):
            evicted.append(self._evict())
        self._entries[entry.key] = entry
        self.mark_used(entry)
        return evicted

    def remove(self, entry: Entry) -> bool:
        """Remove an entry. Returns whether it was in the cache."""
        if self._entries.get(entry.key) is not entry:
            return False
        self._delete(entry)
        return True

    def clear(self) -> list[Entry]:
        """Remove and return all entries."""
        removed = list(self._entries.values())
        self._entries, self.last_used = {}, None
        return removed

    def _exceeds_budget(self, needed_bytes: int) -> bool:
        return self._budget_bytes is not None and self.bytes + needed_bytes > self._budget_bytes

    def _evict(self) -> Entry:
        oldest = min(self._entries.values(), key=lambda entry: entry.stats.last_used)
        self._delete(oldest)
        self.evictions += 1
        return oldest

    def _delete(self, entry: Entry) -> None:
        del self._entries[entry.key]
        if self.last_used is entry:
            self.last_used = None

    def _refuse_if_too_large(self, needed_bytes: int) -> None:
        if self._budget_bytes is not None and needed_bytes > self._budget_bytes:
            problem = f"the graph needs {needed_bytes:,} bytes, memory_budget_bytes= allows {self._budget_bytes:,}"
            raise CannotCapture(Reason.MEMORY_BUDGET, problem, fix="raise memory_budget_bytes=")


class CaptureStats:
    """Counters and refusals of one captured function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._eager_calls: Counter[Reason] = Counter()
        self._refusals: dict[Hashable, Refusal] = {}
        self._logged: set[str] = set()  # messages that were logged already
        self._invalidated: list[str] = []
        self._warning = ""
        self._short_lived = 0  # graphs in a row that were invalidated after at most one replay
        self._past_replays = 0  # replays of graphs that are no longer in the cache
        self._captures = 0
        self._checks = 0
        self._check_failures = 0

    def count_eager_call(self, reason: Reason, cache: GraphCache) -> None:
        """Count a call that ran in eager, and warn once when most calls do."""
        self._eager_calls[reason] += 1
        if self._warning:
            return
        if reason is Reason.NO_DEVICE and reason.value not in self._logged:
            self._logged.add(reason.value)
            _log.warning("%s", self._without_device())
        unexpected = sum(count for why, count in self._eager_calls.items() if why not in _EXPECTED_REASONS)
        if unexpected >= _WARN_AFTER_EAGER_CALLS and unexpected > self._past_replays + cache.replays:
            reasons = ", ".join(f"{why.value} ({count})" for why, count in self._eager_calls.most_common())
            self._warning = f"{self._name}: most calls run in eager instead of replaying a graph: {reasons}"
            _log.warning("%s\nmore: report() of the captured function lists every reason", self._warning)

    def _without_device(self) -> str:
        return f"{self._name}: no tensor of the call is on a GPU, so it runs in eager and nothing is captured"

    def _current_warning(self) -> str:
        only_without_device = self._eager_calls[Reason.NO_DEVICE] and not self._captures
        return self._warning or (self._without_device() if only_without_device else "")

    def count_capture(self, entry: Entry) -> None:
        """Count a new graph and its comparisons with eager."""
        self._captures += 1
        self._checks += entry.stats.checks
        for workaround in entry.workarounds:
            text = str(workaround)
            if workaround.why and text not in self._logged:
                self._logged.add(text)
                _log.warning("%s: captured, but not whole\n  %s", self._name, text)

    def count_check(self) -> None:
        """Count a periodic comparison with eager."""
        self._checks += 1

    def count_removed(self, entry: Entry) -> None:
        """Add the replays of a graph that is no longer in the cache to the total."""
        self._past_replays += entry.stats.replays

    def refuse(self, call: Call | None, why: CannotCapture, *, runs_in_eager: bool) -> None:
        """Remember why a call cannot be captured. Each refusal is logged once."""
        if why.reason in (Reason.WRONG_RESULT, Reason.PADDING):
            self._check_failures += 1
        key: Hashable = why.message if call is None else call.key
        parts = {} if call is None else call.signature.parts
        self._refusals[key] = Refusal(key=parts, reason=why.reason, message=why.message, location=why.location)
        if runs_in_eager and why.message not in self._logged:
            self._logged.add(why.message)
            _log.warning("%s: not captured, runs in eager\n%s", self._name, indent(why.message, "  "))

    def refusal(self, call: Call) -> Refusal | None:
        """Return why this call cannot be captured; None when no capture of it was refused."""
        return self._refusals.get(call.key)

    def forget_refusals(self) -> None:
        """Allow every call to be tried again."""
        self._refusals.clear()

    def invalidate(self, reason: str) -> None:
        """Remember why a graph was invalidated."""
        self._invalidated = [*self._invalidated, reason][-_MAX_INVALIDATION_REASONS:]

    def invalidated_too_often(self, entry: Entry) -> bool:
        """Return whether many graphs in a row were invalidated before they were replayed twice; `entry` is the last of them."""
        self._short_lived = self._short_lived + 1 if entry.stats.replays <= 1 else 0
        return self._short_lived >= MAX_SHORT_LIVED

    def report(self, cache: GraphCache, backend: str, *, frozen: bool) -> CaptureReport:
        """Return the report of the captured function."""
        return CaptureReport(
            name=self._name,
            backend=backend,
            graphs=tuple(entry.record() for entry in cache),
            refusals=tuple(self._refusals.values()),
            workarounds=tuple(dict.fromkeys(found for entry in cache for found in entry.workarounds)),
            invalidated=tuple(self._invalidated),
            replays=self._past_replays + cache.replays,
            eager_calls={reason.value: count for reason, count in self._eager_calls.items()},
            captures=self._captures,
            evictions=cache.evictions,
            checks=self._checks,
            check_failures=self._check_failures,
            bytes=cache.bytes,
            frozen=frozen,
            warning=self._current_warning(),
        )
