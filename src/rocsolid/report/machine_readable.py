"""Probes and findings for other programs: JSON, SARIF, GitHub annotations."""

import json
from collections.abc import Sequence
from pathlib import Path

from rocsolid.model.codec import dumps
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LINT_SCHEMA, LintRecord, fingerprint
from rocsolid.model.saved_probe import PROBE_SCHEMA, ProbeRecord
from rocsolid.rules.engine import rule
from rocsolid.version import __version__

_SARIF_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_SARIF_RANKS = {"inside": 90.0, "reachable": 60.0, "anywhere": 10.0}  # by confidence, from 0 to 100
_GITHUB_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def probe_json(record: ProbeRecord) -> str:
    """The probe as JSON."""
    return dumps(
        PROBE_SCHEMA,
        rocsolid=__version__,
        profile=record.profile,
        findings=record.findings,
        environment=record.environment,
    )


def lint_json(record: LintRecord) -> str:
    """The result of `lint` as JSON."""
    return dumps(
        LINT_SCHEMA,
        rocsolid=__version__,
        findings=record.findings,
        skipped=record.skipped,
        files=record.files,
        lines=record.lines,
        confidence=record.confidence,
        allowed=record.allowed,
        in_baseline=record.in_baseline,
        below_confidence=record.below_confidence,
        in_other_files=record.in_other_files,
    )


def sarif(findings: Sequence[Finding]) -> str:
    """The findings as SARIF 2.1.0, for code-scanning services."""
    codes = sorted({f.code for f in findings})
    run = {
        "tool": {
            "driver": {
                "name": "rocsolid",
                "version": __version__,
                "rules": [_sarif_rule(code) for code in codes],
            }
        },
        "results": [_sarif_result(f, codes) for f in findings],
    }
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def _sarif_rule(code: str) -> dict[str, object]:
    declared = rule(code)
    return {
        "id": code,
        "name": declared.rule.name,
        "shortDescription": {"text": declared.page.partition("\n")[0]},
        "fullDescription": {"text": declared.page.partition("## Why it matters")[2].partition("## Example")[0].strip()},
        "help": {"text": declared.page},
        "defaultConfiguration": {"level": _SARIF_LEVELS[declared.rule.severity]},
    }


def _sarif_result(finding: Finding, codes: list[str]) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. {finding.why} Fix: {finding.fix}"},
        "partialFingerprints": {"rocsolidFinding": fingerprint(finding) if "text" in finding.facts else finding.key},
    }
    file, _, line = finding.location.rpartition(":")
    # SARIF requires a file. A finding about the machine has none, so its file is called "environment".
    location: dict[str, dict[str, object]] = {
        "artifactLocation": {"uri": _relative(file or finding.location or "environment").lstrip("/")},
        "region": {"startLine": int(line) if line.isdigit() else 1},
    }
    if isinstance(column := finding.facts.get("column"), int):
        location["region"]["startColumn"] = column
    if (confidence := finding.facts.get("confidence")) in _SARIF_RANKS:
        result["rank"] = _SARIF_RANKS[str(confidence)]
    if chain := finding.facts.get("chain"):
        result["codeFlows"] = [{"threadFlows": [{"locations": [_call_location(text) for text in chain]}]}]  # type: ignore[attr-defined]
    logical = [{"name": finding.subject, "kind": "resource"}]
    result["locations"] = [{"physicalLocation": location, "logicalLocations": logical}]
    return result


def _call_location(text: str) -> dict[str, object]:
    """The location of one call of a call chain, from `name (file:line)`."""
    file, _, line = text.rpartition("(")[2].rstrip(")").rpartition(":")
    location = {
        "artifactLocation": {"uri": _relative(file).lstrip("/")},
        "region": {"startLine": int(line) if line.isdigit() else 1},
    }
    return {"location": {"message": {"text": text}, "physicalLocation": location}}


def github(findings: Sequence[Finding]) -> str:
    """The findings as GitHub workflow commands, one annotation per line."""
    return "".join(_annotation(f) + "\n" for f in findings)


def _annotation(finding: Finding) -> str:
    position = ""
    if finding.location:
        file, _, line = finding.location.rpartition(":")
        path = _property(_relative(file if line.isdigit() else finding.location))
        position = f"file={path},line={line}," if line.isdigit() else f"file={path},"
        position += f"col={_property(str(finding.facts['column']))}," if "column" in finding.facts else ""
    title = _property(f"{finding.code} {finding.subject}")
    text = _escape(f"{finding.message}\n{finding.why}\nFix: {finding.fix}")
    return f"::{_GITHUB_LEVELS[finding.severity]} {position}title={title}::{text}"


def _relative(file: str) -> str:
    """The path relative to the current folder, because services expect paths relative to the repository."""
    try:
        folder = Path.cwd()
    except OSError:  # it was deleted
        return file
    return str(Path(file).relative_to(folder)) if Path(file).is_relative_to(folder) else file


def _property(text: str) -> str:
    """Escape the value of a property: a comma or a colon would end it."""
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
