"""Evidence for a piece of advice, and how strong it is."""

from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """Kinds of evidence, weakest first. A finding whose only evidence is a claim is never more than INFO, and a claim alone is never the reason for a recommended value."""

    CLAIM = 0  # stated in a guide or a post, without a source
    ISSUE = 1  # a public report
    SOURCE = 2  # upstream code that we read
    MEASURED = 3  # a stored run of ours, with hardware, versions and date


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One piece of evidence: its rank, where it is found, and what it shows."""

    rank: Rank
    ref: str  # a record under evidence/, a file and symbol, an issue, or a guide
    statement: str

    @property
    def url(self) -> str:
        """The address of a public issue; empty for other evidence."""
        if self.rank is Rank.ISSUE:
            repository, _, number = self.ref.partition("#")
            return f"https://github.com/{repository}/issues/{number}"
        return ""

    def __str__(self) -> str:
        return f"{self.rank.name.lower()}: {self.ref}: {self.statement}"


def measured(record: str, statement: str) -> Evidence:
    """A run of ours, stored as evidence/<record>.json."""
    return Evidence(rank=Rank.MEASURED, ref=record, statement=statement)


def source(location: str, statement: str) -> Evidence:
    """Upstream code: project, version, file and symbol."""
    return Evidence(rank=Rank.SOURCE, ref=location, statement=statement)


def issue(thread: str, statement: str) -> Evidence:
    """A public thread, written as `owner/repository#number`."""
    return Evidence(rank=Rank.ISSUE, ref=thread, statement=statement)


def claim(author: str, statement: str) -> Evidence:
    """A statement without a source."""
    return Evidence(rank=Rank.CLAIM, ref=author, statement=statement)
