"""A probe as one self-contained HTML page."""

from rocsolid.catalog import registry
from rocsolid.model.environment import Environment
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.report.fix_commands import fix_text
from rocsolid.report.html import Html, Node, tag
from rocsolid.report.html_page import counts_html, definitions, findings_html, page, table
from rocsolid.report.probe_text import environment_facts, headline, set_by
from rocsolid.report.terminal import Terminal

_ONE_LINE = 10_000  # columns: the browser wraps


def probe_html(record: ProbeRecord) -> str:
    """The page: findings, the commands that fix them, the facts about the machine, and all settings."""
    env = record.environment
    return page(
        "Probe report",
        headline(env, Terminal(width=_ONE_LINE)).replace("\n", " · ") + f" · {env.taken_at}",
        counts_html(record.findings),
        tag("h2", "Findings"),
        findings_html(record.findings),
        tag("h2", "Fixes"),
        tag("pre", fix_text(record.findings)),
        tag("h2", "Machine"),
        definitions([(label, text) for label, text in environment_facts(env) if text]),
        tag("h2", "Settings ", tag("span", f"compared with the profile {record.profile}", class_="faint")),
        _settings(env),
    )


def _settings(env: Environment) -> Html:
    rows: list[tuple[str, list[Node]]] = []
    for name, setting in env.settings.items():
        declared = registry.find(name)
        cells: list[Node] = [
            tag("code", name),
            repr(setting.value),
            repr(setting.default),
            set_by(setting),
            declared.summary if declared else "",
        ]
        rows.append(("highlighted" if setting.changed else "", cells))
    checkbox = "only changed settings" if any(row_class for row_class, _ in rows) else ""
    return table("settings", ["setting", "value", "default", "set by", "what it does"], rows, checkbox=checkbox)
