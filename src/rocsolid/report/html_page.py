"""The parts of all HTML reports: the page (one file, light and dark theme), tables, counts and findings."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding, Severity
from rocsolid.report.html import Html, Node, document, join, make_id, tag
from rocsolid.version import __version__

_ASSETS = Path(__file__).with_name("assets")
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def page(title: str, subtitle: str, *body: Node, styles: Sequence[str] = (), scripts: Sequence[str] = ()) -> str:
    """Return a complete page. `styles` and `scripts` are files in `assets/` that it needs besides those of every page."""
    header = tag(
        "header",
        tag("div", tag("h1", title), tag("div", subtitle, class_="faint")),
        tag("button", "light / dark", id="theme", type="button"),
    )
    return document(
        title=title,
        styles=[_asset(name) for name in ("page.css", *styles)],
        scripts=[_asset(name) for name in ("page.js", *scripts)],
        body=join(header, "\n", tag("main", *body), "\n", tag("footer", f"rocsolid {__version__}")),
    )


def table(
    name: str,
    headings: Sequence[str],
    rows: Iterable[tuple[str, Sequence[Node]]],
    *,
    checkbox: str = "",
    checked: bool = True,
) -> Html:
    """Return a table that the reader can sort and filter. Each row is a CSS class and its cells.

    `checkbox` is the label of a checkbox that hides all rows whose class is not `highlighted`.
    """
    label = tag("label", tag("input", type="checkbox", checked=checked), " ", checkbox) if checkbox else None
    head = [heading(text) for text in headings]
    body = [tag("tr", [tag("td", cell) for cell in cells], class_=css_class) for css_class, cells in rows]
    return table_frame(name, head, body, label)


def heading(text: str, css_class: str | None = None) -> Html:
    """Return the heading of a column; a click on it sorts."""
    return tag("th", tag("button", text, type="button"), scope="col", class_=css_class)


def table_frame(name: str, head: Node, body: Node, extra_tools: Node = None, *, has_filter: bool = True) -> Html:
    """Return a table with its filter, made of heading cells and rows."""
    search = tag("input", type="search", placeholder="filter", aria_label=f"filter {name}")
    tools = tag("div", search, extra_tools, tag("output", class_="faint"), class_="tools", data_for=make_id(name))
    whole = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), id=name, data_sortable=True)
    return join(
        tools if has_filter else None,
        tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=name),
    )


def definitions(rows: Mapping[str, Node] | Iterable[tuple[Node, Node]]) -> Html:
    """Return labels with their texts."""
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    return tag("dl", [[tag("dt", label), tag("dd", text)] for label, text in pairs])


def counts_html(findings: Sequence[Finding], words: Sequence[str] = ("critical", "warnings", "info")) -> Html:
    """Return how many findings there are of each severity."""
    numbers = [sum(f.severity is severity for f in findings) for severity in _SEVERITIES]
    rows = zip(_SEVERITIES, numbers, words, strict=True)
    return tag("ul", [tag("li", tag("b", n, class_=s.name.lower()), word) for s, n, word in rows], class_="counts")


def findings_html(findings: Iterable[Finding]) -> Html:
    """Return all findings, or a sentence if there are none."""
    return join([_finding(finding) for finding in findings]) or tag("p", "No findings.", class_="good")


def legend(entries: Iterable[tuple[str, str]]) -> Html:
    """Return labels with their colours."""
    return tag("ul", [tag("li", _swatch(colour), label) for label, colour in entries], class_="legend")


def _swatch(colour: str) -> Html:
    # SVG, because the policy of the page allows no style attribute.
    return tag("svg", tag("rect", width="100%", height="100%", fill=colour), aria_hidden="true")


def _finding(finding: Finding) -> Html:
    """Return one finding. A click on its message shows why, fix, check and evidence."""
    severity = finding.severity.name.lower()
    rows: list[tuple[Node, Node]] = [
        (label, text)
        for label, text in (
            ("location", finding.location),
            ("why", finding.why),
            ("fix", finding.fix),
            ("check", finding.check),
            ("cause", finding.cause),
        )
        if text
    ]
    rows += [("" if index else "evidence", _evidence(e)) for index, e in enumerate(finding.evidence)]
    summary = tag(
        "summary",
        tag("b", finding.severity.name, class_=severity),
        " ",
        tag("code", finding.code),
        " ",
        finding.message,
    )
    return tag(
        "details",
        summary,
        tag("div", definitions(rows)),
        class_=f"finding is-{severity}",
        id=finding.key,
        open=finding.severity > Severity.INFO,
    )


def _evidence(evidence: Evidence) -> Html:
    source = tag("a", evidence.ref, href=evidence.url) if evidence.url else tag("code", evidence.ref)
    return join(f"{evidence.rank.name.lower()}: {evidence.statement} ", source)
