"""Rules, and the findings they produce."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rocsolid.model.evidence import Evidence, Rank
from rocsolid.model.notebook import NotebookResult


class Severity(IntEnum):
    """How much a finding matters. Ordered, so that `>=` means "at least"."""

    INFO = 0  # for information, nothing has to change
    WARNING = 1  # costs time or memory, or makes results unreliable
    CRITICAL = 2  # hangs, crashes or gives wrong results


class Autofix(IntEnum):
    """Whether rocsolid may apply the fix."""

    SHOW = 0  # no: the fix is shown as text, and the user makes the change
    ASK = 1  # no, but `probe --fix` prints the fix as commands, which the user can run
    SAFE = 2  # yes: `lint --fix` edits the file


@dataclass(frozen=True, kw_only=True)
class FixCommands:
    """A fix as commands: variables to unset or export, Python statements to run."""

    unset: tuple[str, ...] = ()
    export: Mapping[str, str] = field(default_factory=dict)
    python: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding(NotebookResult):
    """One place where a rule applies: what was found, why it matters here, and how to fix it."""

    code: str
    name: str
    severity: Severity
    subject: str
    message: str
    why: str
    fix: str
    check: str  # a command, or a test by hand, that shows whether the fix worked
    evidence: tuple[Evidence, ...] = ()
    fix_commands: FixCommands = FixCommands()
    facts: Mapping[str, object] = field(default_factory=dict)
    cause: str = ""  # the key of the finding that causes this one
    location: str = ""  # `file:line`, or the file; empty for findings about the machine

    @property
    def key(self) -> str:
        """Identifies the finding: rule code and subject."""
        return f"{self.code}:{self.subject}"

    def __repr__(self) -> str:
        return f"<Finding {self}>"

    def __str__(self) -> str:
        return f"{self.severity.name} {self.code} {self.subject}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One hazard: code, name, severity, and the texts of its findings.

    `message`, `why`, `fix` and `check` are format strings, filled with the facts that `found` receives.
    """

    code: str
    name: str
    severity: Severity
    message: str
    why: str
    fix: str
    check: str
    since: str
    on_by_default: bool = True  # without it, `lint` reports the rule only if it is selected
    autofix: Autofix = Autofix.SHOW
    evidence: tuple[Evidence, ...] = ()

    def found(
        self,
        subject: str,
        *,
        severity: Severity | None = None,
        evidence: tuple[Evidence, ...] = (),
        fix_commands: FixCommands = FixCommands(),
        cause: str = "",
        location: str = "",
        **facts: object,
    ) -> Finding:
        """Create a finding from the rule's templates.

        All findings are created here, so every message comes from a documented template.
        A rule whose only evidence is a claim never reports more than INFO.
        """
        path, _, line = location.rpartition(":")
        file = path if line.isdigit() else location
        values = {"code": self.code, "subject": subject, "location": location, "file": file, **facts}
        used_evidence = evidence or self.evidence
        level = self.severity if severity is None else severity
        if used_evidence and all(e.rank is Rank.CLAIM for e in used_evidence):
            level = Severity.INFO
        return Finding(
            code=self.code,
            name=self.name,
            severity=level,
            subject=subject,
            message=fill(self.message, values),
            why=fill(self.why, values),
            fix=fill(self.fix, values),
            check=fill(self.check, values),
            evidence=used_evidence,
            fix_commands=fix_commands,
            facts=facts,
            cause=cause,
            location=location,
        )


def fill(template: str, facts: Mapping[str, object]) -> str:
    """Fill a template with facts. A missing fact is a bug in the rule and raises KeyError."""
    return string.Formatter().vformat(template, (), facts)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Sort by severity. Within one severity, findings that another finding causes come last."""
    return sorted(findings, key=lambda f: (-f.severity, bool(f.cause), f.code, f.subject))
