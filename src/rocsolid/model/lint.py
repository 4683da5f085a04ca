"""The result of linting files."""

import hashlib
from dataclasses import dataclass
from typing import Final

from rocsolid.model.finding import Finding
from rocsolid.model.notebook import NotebookResult

LINT_SCHEMA: Final = "rocsolid/lint/1"


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A file or folder that could not be read, and why."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LintRecord(NotebookResult):
    """Findings in source files, and the number of findings that were left out.

    A finding's `location` is its `file:line`. Its facts contain `code_line` (the line with the columns of the expression), `text` (the
    line without indentation), `column`, `function`, `confidence` (inside, reachable or anywhere) and `chain` (the calls from the
    compiled or captured function to the finding), and `role` (test, benchmark, example or script; empty for the product).
    """

    findings: tuple[Finding, ...]
    skipped: tuple[SkippedFile, ...] = ()
    rocm_rules_skipped: tuple[SkippedFile, ...] = ()  # files for NVIDIA only, in which rules about ROCm found something
    files: int = 0
    lines: int = 0
    confidence: str = "reachable"
    target: str = ""  # the GPU for which values of settings were judged
    allowed: int = 0  # by comments
    in_baseline: int = 0
    below_confidence: int = 0
    in_other_files: int = 0  # findings in tests, benchmarks, examples and scripts that are not reported


def fingerprint(finding: Finding) -> str:
    """Identifies a finding across edits elsewhere in its file: a hash of rule, file, subject and the text of the line."""
    file = finding.location.rpartition(":")[0]
    text = "\n".join([finding.code, file, finding.subject, str(finding.facts.get("text", ""))])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
