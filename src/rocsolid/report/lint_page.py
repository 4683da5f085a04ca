"""Lint findings as one self-contained HTML page."""

from collections.abc import Iterator

from rocsolid.model.finding import Finding
from rocsolid.model.lint import LintRecord
from rocsolid.report.html import Html, Node, join, make_id, tag
from rocsolid.report.html_page import counts_html, definitions, page, table
from rocsolid.report.lint_text import chain_of, code_lines


def lint_html(record: LintRecord) -> str:
    """Findings in a table that sorts and filters, then why and fix of each rule, then the skipped files."""
    parts: list[Node] = [counts_html(record.findings, ("critical", "warnings", "notes")), tag("h2", "Findings")]
    if record.findings:
        rows = [(f"is-{f.severity.name.lower()}", _cells(f)) for f in record.findings]
        parts.append(table("findings", ["rule", "location", "message", "confidence"], rows))
        parts += [tag("h2", "Rules"), *_rules(record.findings)]
    else:
        parts.append(tag("p", "No findings.", class_="good"))
    if record.skipped:
        parts += [tag("h2", "Skipped files"), definitions([(s.file, s.reason) for s in record.skipped])]
    subtitle = (
        f"{record.files:,} files, {record.lines:,} lines · confidence {record.confidence} and above · "
        f"hidden: {record.allowed} allowed by comments, {record.in_baseline} in the baseline, {record.below_confidence} less certain, {record.in_other_files} in tests, benchmarks, examples and scripts"
    )
    return page("Lint findings", subtitle, *parts)


def _cells(finding: Finding) -> list[Node]:
    badge = tag("b", finding.severity.name, class_=f"{finding.severity.name.lower()} nowrap")
    link = tag("a", tag("code", finding.code), href=f"#{make_id(finding.code)}", class_="nowrap")
    chain: list[Node] = [[tag("br"), f"→ {step}"] for step in chain_of(finding)]
    return [
        [badge, " ", link, tag("br"), finding.name],
        tag("code", finding.location),
        [finding.message, tag("pre", "\n".join(code_lines(finding))), tag("span", chain, class_="faint")],
        tag("span", str(finding.facts.get("confidence", "")), class_="nowrap"),
    ]


def _rules(findings: tuple[Finding, ...]) -> Iterator[Html]:
    """Why and fix of each rule with findings."""
    first_finding = {finding.code: finding for finding in reversed(findings)}
    for code, f in sorted(first_finding.items()):
        summary = tag("summary", join(tag("code", code), " ", f.name))
        body = tag("div", definitions([("why", f.why), ("fix", f.fix)]))
        yield tag("details", summary, body, class_=f"finding is-{f.severity.name.lower()}", id=code, open=True)
