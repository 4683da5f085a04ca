"""The result of probing one private torch name."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProbedName:
    """One private torch name, and whether it does what rocsolid needs."""

    name: str
    without: str  # "feature: what happens instead"
    problem: str = ""  # why the name cannot be used; empty if it can
    skipped: str = ""  # why it was not checked: this release, build or environment does not have it
