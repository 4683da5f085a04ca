"""What backs a piece of advice, and how much that is worth."""

from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """Kinds of evidence, weakest first. A claim alone raises no error and becomes no default."""

    CLAIM = 0  # somebody says so
    ISSUE = 1  # a public report
    SOURCE = 2  # upstream code, read
    MEASURED = 3  # a stored run of ours, with hardware, versions and date


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One reason to believe a statement."""

    rank: Rank
    ref: str  # a record under evidence/, a file and symbol, an issue, or a guide
    says: str

    @property
    def url(self) -> str:
        """Where a reader can look it up, or nothing."""
        if self.rank is Rank.ISSUE:
            repository, _, number = self.ref.partition("#")
            return f"https://github.com/{repository}/issues/{number}"
        return ""

    def __str__(self) -> str:
        return f"{self.rank.name.lower()}: {self.ref}: {self.says}"


def measured(record: str, says: str) -> Evidence:
    """A run of ours, stored as evidence/<record>.json."""
    return Evidence(rank=Rank.MEASURED, ref=record, says=says)


def source(place: str, says: str) -> Evidence:
    """Upstream code: project, version, file and symbol."""
    return Evidence(rank=Rank.SOURCE, ref=place, says=says)


def issue(thread: str, says: str) -> Evidence:
    """A public thread, as `owner/repository#number`."""
    return Evidence(rank=Rank.ISSUE, ref=thread, says=says)


def claim(who: str, says: str) -> Evidence:
    """Somebody says so."""
    return Evidence(rank=Rank.CLAIM, ref=who, says=says)
