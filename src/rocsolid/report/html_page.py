"""The parts of all HTML reports: the page (one file, light and dark theme), tables and findings."""

from functools import cache
from html import escape
from pathlib import Path

from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding, Severity
from rocsolid.version import __version__

_ASSETS = Path(__file__).with_name("assets")


@cache
def asset(name: str) -> str:
    """A script or style sheet that is embedded in pages."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def page(title: str, subtitle: str, body: str) -> str:
    """Return a complete page. `body` is HTML; title and subtitle are text."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<header>
<div><h1>{escape(title)}</h1><div class="faint">{escape(subtitle)}</div></div>
<button id="theme" type="button">light / dark</button>
</header>
<main>
{body}
</main>
<footer>rocsolid {escape(__version__)}</footer>
<script>
{asset("page.js")}</script>
</body>
</html>
"""


def table(
    table_id: str, headings: list[str], rows: list[tuple[str, list[str]]], *, checkbox: str = "", checked: bool = True
) -> str:
    """Return a table that the reader can sort and filter. Each row is a CSS class and a list of cells in HTML.

    `checkbox` is the label of a checkbox that hides all rows whose class is not `highlighted`.
    """
    state = " checked" if checked else ""
    label = f'<label><input type="checkbox"{state}> {escape(checkbox)}</label>' if checkbox else ""
    head = "".join(f'<th scope="col"><button type="button">{escape(h)}</button></th>' for h in headings)
    body = "".join(
        f'<tr class="{css_class}">' + "".join(f"<td>{c}</td>" for c in cells) + "</tr>" for css_class, cells in rows
    )
    return f"""<div class="tools" data-for="{table_id}">
<input type="search" placeholder="filter" aria-label="filter {table_id}">{label}<output class="faint"></output>
</div>
<div class="scroll" tabindex="0" role="region" aria-label="{table_id}">
<table id="{table_id}" data-sortable><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</div>"""


def finding_html(finding: Finding) -> str:
    """Return one finding. A click on its message shows why, fix, check and evidence."""
    severity = finding.severity.name.lower()
    open_attribute = " open" if finding.severity > Severity.INFO else ""
    rows = [
        ("location", finding.location),
        ("why", finding.why),
        ("fix", finding.fix),
        ("check", finding.check),
        ("cause", finding.cause),
    ]
    details = "".join(f"<dt>{label}</dt><dd>{escape(text)}</dd>" for label, text in rows if text)
    details += "".join(
        f"<dt>{'' if index else 'evidence'}</dt><dd>{_evidence(e)}</dd>" for index, e in enumerate(finding.evidence)
    )
    return (
        f'<details class="finding is-{severity}" id="{escape(finding.key)}"{open_attribute}><summary>'
        f'<b class="{severity}">{finding.severity.name}</b> <code>{finding.code}</code> {escape(finding.message)}'
        f"</summary><div><dl>{details}</dl></div></details>"
    )


def _evidence(evidence: Evidence) -> str:
    source = (
        f'<a href="{escape(evidence.url)}">{escape(evidence.ref)}</a>'
        if evidence.url
        else f"<code>{escape(evidence.ref)}</code>"
    )
    return f"{evidence.rank.name.lower()}: {escape(evidence.statement)} {source}"
