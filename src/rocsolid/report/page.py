"""The frame that every HTML report shares: one file, no outside references, light and dark."""

from functools import cache
from html import escape
from pathlib import Path

from rocsolid.version import __version__

_ASSETS = Path(__file__).with_name("assets")


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def page(title: str, subtitle: str, body: str) -> str:
    """A whole page around `body`, which is HTML already."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_asset("page.css")}</style>
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
{_asset("page.js")}</script>
</body>
</html>
"""


def table(table_id: str, headings: list[str], rows: list[tuple[str, list[str]]], *, tick: str = "") -> str:
    """A table that sorts and filters; each row is a class and its cells, which are HTML already."""
    ticked = f'<label><input type="checkbox" checked> {escape(tick)}</label>' if tick else ""
    head = "".join(f'<th scope="col"><button type="button">{escape(h)}</button></th>' for h in headings)
    body = "".join(f'<tr class="{kind}">' + "".join(f"<td>{c}</td>" for c in cells) + "</tr>" for kind, cells in rows)
    return f"""<div class="tools" data-for="{table_id}">
<input type="search" placeholder="filter" aria-label="filter {table_id}">{ticked}<output class="faint"></output>
</div>
<div class="scroll" tabindex="0" role="region" aria-label="{table_id}">
<table id="{table_id}" data-sortable><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</div>"""
