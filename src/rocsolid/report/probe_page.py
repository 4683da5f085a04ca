"""A probe as one self-contained HTML page."""

from html import escape

from rocsolid.catalog import registry
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Severity
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.report.fix_commands import fix_text
from rocsolid.report.html_page import finding_html, page, table
from rocsolid.report.probe_text import environment_facts, headline, set_by
from rocsolid.report.terminal import Terminal

_WORDS = {Severity.CRITICAL: "critical", Severity.WARNING: "warnings", Severity.INFO: "info"}


def probe_html(record: ProbeRecord) -> str:
    """The page: findings, the commands that fix them, the facts about the machine, and all settings."""
    env = record.environment
    parts = [
        counts_html(record.findings),
        "<h2>Findings</h2>",
        "".join(finding_html(f) for f in record.findings) or '<p class="good">No findings.</p>',
        "<h2>Fixes</h2>",
        f"<pre>{escape(fix_text(record.findings))}</pre>",
        "<h2>Machine</h2>",
        _facts(env),
        f"<h2>Settings <span class='faint'>compared with the profile {escape(record.profile)}</span></h2>",
        _settings(env),
    ]
    subtitle = headline(env, Terminal()).replace("\n", " · ") + f" · {env.taken_at}"
    return page("Probe report", subtitle, "\n".join(parts))


def counts_html(findings: tuple[Finding, ...]) -> str:
    """How many findings there are of each severity."""
    items = [
        f'<li><b class="{severity.name.lower()}">{sum(f.severity is severity for f in findings)}</b>{word}</li>'
        for severity, word in _WORDS.items()
    ]
    return f'<ul class="counts">{"".join(items)}</ul>'


def _facts(env: Environment) -> str:
    rows = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in environment_facts(env) if text)
    return f"<dl>{rows}</dl>"


def _settings(env: Environment) -> str:
    rows = []
    for name, setting in env.settings.items():
        declared = registry.find(name)
        cells = [
            f"<code>{escape(name)}</code>",
            repr(setting.value),
            repr(setting.default),
            set_by(setting),
            declared.summary if declared else "",
        ]
        rows.append(("highlighted" if setting.changed else "", [cells[0], *(escape(cell) for cell in cells[1:])]))
    checkbox = "only changed settings" if any(row_class for row_class, _ in rows) else ""
    return table("settings", ["setting", "value", "default", "set by", "what it does"], rows, checkbox=checkbox)
