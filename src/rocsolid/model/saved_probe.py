"""What a probe, or an image in the ledger, boils down to when it is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding

PROBE_SCHEMA = "rocsolid/probe/1"


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """A snapshot and what was found in it under one profile."""

    environment: Environment
    findings: tuple[Finding, ...]
    profile: str


@dataclass(frozen=True, kw_only=True)
class ImageEntry:
    """An image as somebody saw it; without a record, as somebody described it."""

    image: str
    digest: str = ""
    recorded_at: str = ""
    source: str  # probe, scan, import or claim
    says: str = ""
    evidence: tuple[Evidence, ...] = ()
    record: ProbeRecord | None = None

    @property
    def key(self) -> str:
        """The image with its digest, as container tools write it."""
        return f"{self.image}@{self.digest}" if self.digest else self.image


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that is different between two snapshots."""

    what: str
    before: object
    after: object


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changed from one probe to another."""

    facts: tuple[Change, ...] = ()
    settings: tuple[Change, ...] = ()
    variables: tuple[Change, ...] = ()
    gone: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.facts or self.settings or self.variables or self.gone or self.new)
