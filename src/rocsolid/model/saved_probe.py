"""Probes as they are saved: one probe, one image of the ledger, the difference of two probes."""

from dataclasses import dataclass

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding
from rocsolid.model.notebook import NotebookResult

PROBE_SCHEMA = "rocsolid/probe/1"


@dataclass(frozen=True, kw_only=True)
class ProbeRecord(NotebookResult):
    """A snapshot, and the findings in it under one profile."""

    environment: Environment
    findings: tuple[Finding, ...]
    profile: str


@dataclass(frozen=True, kw_only=True)
class ImageEntry:
    """A container image in the ledger: probed, or, without a record, only described by a guide."""

    image: str
    digest: str = ""
    recorded_at: str = ""
    source: str  # probe, scan or claim
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
    gone: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.facts or self.settings or self.variables or self.gone or self.new)
