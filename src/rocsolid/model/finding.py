"""What a rule is, and what it says when it finds something."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rocsolid.model.evidence import Evidence, Rank


class Severity(IntEnum):
    """How much a finding matters; sorted worst last so that `>=` reads as "at least"."""

    INFO = 0  # good to know
    WARNING = 1  # will cost time, memory or trust
    CRITICAL = 2  # will hang, crash or answer wrongly


class Autofix(IntEnum):
    """Who may carry out the fix."""

    SHOW = 0  # a person must
    ASK = 1  # the tool, on request
    SAFE = 2  # the tool, at any time


@dataclass(frozen=True, kw_only=True)
class FixCommands:
    """A fix a shell or a program can carry out: variables to set or unset, Python to run."""

    unset: tuple[str, ...] = ()
    export: Mapping[str, str] = field(default_factory=dict)
    python: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was seen, why it matters here, and what to do about it."""

    code: str
    name: str
    severity: Severity
    subject: str
    message: str
    why: str
    fix: str
    check: str  # how to see that the fix worked
    evidence: tuple[Evidence, ...] = ()
    fix_commands: FixCommands = FixCommands()
    facts: Mapping[str, object] = field(default_factory=dict)
    cause: str = ""  # key of the finding that brings this one about
    place: str = ""  # file:line, for what was found in a file

    @property
    def key(self) -> str:
        """Names this finding among others: the code and what it is about."""
        return f"{self.code}:{self.subject}"

    def __str__(self) -> str:
        return f"{self.severity.name} {self.code} {self.subject}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A hazard: how it is called, and every sentence it may utter.

    `message`, `why`, `fix` and `check` are templates over the facts that `found` is given.
    """

    code: str
    name: str
    severity: Severity
    message: str
    why: str
    fix: str
    check: str
    since: str
    autofix: Autofix = Autofix.SHOW
    evidence: tuple[Evidence, ...] = ()

    def found(
        self,
        subject: str,
        *,
        severity: Severity | None = None,
        evidence: tuple[Evidence, ...] = (),
        fix_commands: FixCommands = FixCommands(),  # noqa: B008 - frozen data
        cause: str = "",
        place: str = "",
        **facts: object,
    ) -> Finding:
        """The only way to a finding, so that every message is a documented template with its raw facts beside it."""
        shown = {"subject": subject, "place": place, **facts}
        backing = evidence or self.evidence
        level = self.severity if severity is None else severity
        if backing and all(e.rank is Rank.CLAIM for e in backing):
            level = Severity.INFO
        return Finding(
            code=self.code,
            name=self.name,
            severity=level,
            subject=subject,
            message=fill(self.message, shown),
            why=fill(self.why, shown),
            fix=fill(self.fix, shown),
            check=fill(self.check, shown),
            evidence=backing,
            fix_commands=fix_commands,
            facts=facts,
            cause=cause,
            place=place,
        )


def fill(template: str, facts: Mapping[str, object]) -> str:
    """Put the facts into a template; a fact that is missing is a mistake in the rule and raises KeyError."""
    return string.Formatter().vformat(template, (), facts)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Sorted for a reader: by severity, then so that a cause stands before what it causes."""
    return sorted(findings, key=lambda f: (-f.severity, bool(f.cause), f.code, f.subject))
