"""Saved probes, the entries of the ledger, and the difference between two probes."""

from dataclasses import dataclass

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding
from rocsolid.model.notebook import NotebookResult

PROBE_SCHEMA = "rocsolid/probe/1"


@dataclass(frozen=True, kw_only=True)
class ProbeRecord(NotebookResult):
    """A snapshot of a machine, and the findings when its settings are compared with one profile."""

    environment: Environment
    findings: tuple[Finding, ...]
    profile: str


@dataclass(frozen=True, kw_only=True)
class ImageEntry:
    """A container image in the ledger. Without a record it was not probed, and only a guide describes it."""

    image: str
    digest: str = ""  # the digest that the container tool reports, or the image fingerprint
    recorded_at: str = ""
    source: str  # `probe` (inside the container), `scan` (from outside) or `claim` (by a guide)
    note: str = ""  # what the guide says about the image
    evidence: tuple[Evidence, ...] = ()
    record: ProbeRecord | None = None

    @property
    def key(self) -> str:
        """The image with its digest, as container tools write it."""
        return f"{self.image}@{self.digest}" if self.digest else self.image


@dataclass(frozen=True, kw_only=True)
class ValueChange:
    """One value that differs between two snapshots."""

    name: str
    before: object
    after: object


@dataclass(frozen=True, kw_only=True)
class ProbeDifference:
    """What changed from one probe to another."""

    facts: tuple[ValueChange, ...] = ()
    settings: tuple[ValueChange, ...] = ()
    variables: tuple[ValueChange, ...] = ()
    gone_findings: tuple[Finding, ...] = ()
    new_findings: tuple[Finding, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.facts or self.settings or self.variables or self.gone_findings or self.new_findings)
