"""What a lint of some files boils down to."""

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
