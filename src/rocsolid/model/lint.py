"""What a lint of some files boils down to."""

import hashlib
from dataclasses import dataclass
from typing import Final

from rocsolid.model.finding import Finding

LINT_SCHEMA: Final = "rocsolid/lint/1"


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """A file or folder that could not be read, and why."""

    file: str
    why: str


@dataclass(frozen=True, kw_only=True)
class LintRecord:
    """Findings in source, and what was left out of them.

    A finding's `place` is its file and line; its facts hold `column`, `function`, `text` (the line itself),
    `confidence` (inside, reachable or anywhere) and `chain` (the calls that lead from a region to it).
    """

    findings: tuple[Finding, ...]
    passed_over: tuple[PassedOver, ...] = ()
    files: int = 0
    lines: int = 0
    confidence: str = "reachable"
    allowed: int = 0  # by comments
    in_baseline: int = 0
    less_sure: int = 0  # below the confidence asked for


def fingerprint(finding: Finding) -> str:
    """Names a finding across edits elsewhere in its file: the rule, the file, the subject and the line's own text."""
    file = finding.location.rpartition(":")[0]
    text = "\n".join([finding.code, file, finding.subject, str(finding.facts.get("text", ""))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
