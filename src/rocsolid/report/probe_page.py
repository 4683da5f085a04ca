"""A probe as one self-contained HTML page."""

from html import escape

from rocsolid.catalog import registry
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.report.fix_commands import fix_text
from rocsolid.report.html_page import finding_html, page, table
from rocsolid.report.probe_text import facts, headline
from rocsolid.report.terminal import Terminal

_WORDS = {Severity.CRITICAL: "critical", Severity.WARNING: "warnings", Severity.INFO: "notes"}


def probe_html(record: ProbeRecord) -> str:
    """Findings, what to run, what was seen, and every setting."""
    env = record.environment
    parts = [
        counts_html(record.findings),
        "<h2>Findings</h2>",
        "".join(finding_html(f) for f in record.findings) or '<p class="good">Nothing found that would hurt.</p>',
        "<h2>What to run</h2>",
        f"<pre>{escape(fix_text(record.findings))}</pre>",
        "<h2>What was seen</h2>",
        _facts(env),
        f"<h2>Settings <span class='faint'>held against the profile {escape(record.profile)}</span></h2>",
        _settings(env),
    ]
    subtitle = headline(env, Terminal()).replace("\n", " · ") + f" · {env.taken_at}"
    return page("What here will hurt me?", subtitle, "\n".join(parts))


def counts_html(findings: tuple[Finding, ...]) -> str:
    """How many findings there are of each severity."""
    items = [
        f'<li><b class="{severity.name.lower()}">{sum(f.severity is severity for f in findings)}</b>{word}</li>'
        for severity, word in _WORDS.items()
    ]
    return f'<ul class="counts">{"".join(items)}</ul>'


def _facts(env: Environment) -> str:
    rows = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in facts(env) if text)
    return f"<dl>{rows}</dl>"


def _settings(env: Environment) -> str:
    rows = []
    for name, seen in env.settings.items():
        known = registry.find(name)
        by = f"{seen.origin.value} {seen.by}".strip() if seen.moved else ""
        cells = [
            f"<code>{escape(name)}</code>",
            repr(seen.value),
            repr(seen.upstream),
            by,
            known.summary if known else "",
        ]
        rows.append(("moved" if seen.moved else "", [cells[0], *(escape(cell) for cell in cells[1:])]))
    any_moved = any(kind for kind, _ in rows)
    tick = "only what somebody moved" if any_moved else ""
    return table("settings", ["setting", "value", "this release ships", "moved by", "what it does"], rows, tick=tick)
