"""Lint findings as one self-contained HTML page."""

from html import escape

from rocsolid.model.finding import Finding, Severity
from rocsolid.model.lint import LintRecord
from rocsolid.report.html_page import page, table
from rocsolid.report.lint_text import chain_of, code_lines

_NO_WRAP = 'style="white-space: nowrap"'
_SEVERITY_WORDS = {Severity.CRITICAL: "critical", Severity.WARNING: "warnings", Severity.INFO: "notes"}


def lint_html(record: LintRecord) -> str:
    """Findings in a table that sorts and filters, then why and fix of each rule, then the skipped files."""
    parts = [_counts(record.findings), "<h2>Findings</h2>"]
    if record.findings:
        rows = [(f"is-{f.severity.name.lower()}", _cells(f)) for f in record.findings]
        parts.append(table("findings", ["rule", "location", "message", "confidence"], rows))
        parts += ["<h2>Rules</h2>", *_rules(record.findings)]
    else:
        parts.append('<p class="good">No findings.</p>')
    if record.skipped:
        listed = "".join(f"<dt>{escape(s.file)}</dt><dd>{escape(s.reason)}</dd>" for s in record.skipped)
        parts.append(f"<h2>Skipped files</h2><dl>{listed}</dl>")
    subtitle = (
        f"{record.files:,} files, {record.lines:,} lines · confidence {record.confidence} and above · "
        f"hidden: {record.allowed} allowed by comments, {record.in_baseline} in the baseline, {record.below_confidence} less certain"
    )
    return page("Lint findings", subtitle, "\n".join(parts))


def _counts(findings: tuple[Finding, ...]) -> str:
    items = [
        f'<li><b class="{severity.name.lower()}">{sum(f.severity is severity for f in findings)}</b>{word}</li>'
        for severity, word in _SEVERITY_WORDS.items()
    ]
    return f'<ul class="counts">{"".join(items)}</ul>'


def _cells(finding: Finding) -> list[str]:
    kind = finding.severity.name.lower()
    chain = "".join(f"<br>→ {escape(step)}" for step in chain_of(finding))
    code = escape("\n".join(code_lines(finding)))
    badge = f'<b class="{kind}" {_NO_WRAP}>{finding.severity.name}</b>'
    link = f'<a href="#{finding.code}" {_NO_WRAP}><code>{finding.code}</code></a>'
    return [
        f"{badge} {link}<br>{escape(finding.name)}",
        f"<code>{escape(finding.location)}</code>",
        f'{escape(finding.message)}<pre>{code}</pre><span class="faint">{chain}</span>',
        f"<span {_NO_WRAP}>{escape(str(finding.facts.get('confidence', '')))}</span>",
    ]


def _rules(findings: tuple[Finding, ...]) -> list[str]:
    """Why and fix of each rule with findings."""
    first_finding = {finding.code: finding for finding in reversed(findings)}
    return [
        f'<details class="finding is-{f.severity.name.lower()}" id="{code}" open><summary><code>{code}</code> {escape(f.name)}'
        f"</summary><div><dl><dt>why</dt><dd>{escape(f.why)}</dd><dt>fix</dt><dd>{escape(f.fix)}</dd></dl></div></details>"
        for code, f in sorted(first_finding.items())
    ]
