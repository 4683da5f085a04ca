"""Findings for machines: JSON, SARIF, and annotations for GitHub."""

import json
from collections.abc import Sequence

from rocsolid.model.codec import dumps
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.record import PROBE_SCHEMA, ProbeRecord
from rocsolid.rules.engine import rule
from rocsolid.version import __version__

_SARIF_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_GITHUB_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def probe_json(record: ProbeRecord) -> str:
    """The whole record; the schema is a contract."""
    return dumps(
        PROBE_SCHEMA,
        rocsolid=__version__,
        profile=record.profile,
        findings=record.findings,
        environment=record.environment,
    )


def sarif(findings: Sequence[Finding]) -> str:
    """SARIF 2.1.0, as code-scanning services read it."""
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
        "message": {"text": f"{finding.seen}. {finding.why} Fix: {finding.cure}"},
        "partialFingerprints": {"rocsolidFinding": finding.key},
    }
    file, _, line = finding.place.rpartition(":")
    # Services insist on a file; what was found in no file is put down to the environment as a whole.
    where = {
        "artifactLocation": {"uri": (file or finding.place or "environment").lstrip("/")},
        "region": {"startLine": int(line) if line.isdigit() else 1},
    }
    logical = [{"name": finding.subject, "kind": "resource"}]
    result["locations"] = [{"physicalLocation": where, "logicalLocations": logical}]
    return result


def github(findings: Sequence[Finding]) -> str:
    """Workflow commands, one annotation a line."""
    return "".join(_annotation(f) + "\n" for f in findings)


def _annotation(finding: Finding) -> str:
    where = ""
    if finding.place:
        file, _, line = finding.place.rpartition(":")
        where = f"file={file},line={line}," if line.isdigit() else f"file={finding.place},"
    title = _escape(f"{finding.code} {finding.subject}").replace(":", "%3A").replace(",", "%2C")
    text = _escape(f"{finding.seen}\n{finding.why}\nFix: {finding.cure}")
    return f"::{_GITHUB_LEVELS[finding.severity]} {where}title={title}::{text}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
