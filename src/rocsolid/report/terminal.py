"""Colours, width and line wrapping for a terminal, and Markdown pages as terminal text."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TextIO

from rocsolid.model.finding import Severity

_ANSI_CODES = {"bold": "1", "dim": "2", "red": "31", "yellow": "33", "green": "32", "cyan": "36", "plain": "0"}
_SEVERITY_STYLES = {Severity.CRITICAL: ("red", "bold"), Severity.WARNING: ("yellow", "bold"), Severity.INFO: ("cyan",)}
_MAX_WIDTH, _MIN_WIDTH = 110, 40
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_ITALIC: Final = re.compile(r"\*(\S(?:[^*]*\S)?)\*")


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """The width of a terminal, and whether it shows colours."""

    width: int = 100
    colour: bool = False

    def paint(self, text: str, *styles: str) -> str:
        """Return the text in a style; unchanged without colours."""
        if not self.colour or not styles:
            return text
        return f"\033[{';'.join(_ANSI_CODES[s] for s in styles)}m{text}\033[0m"

    def severity(self, severity: Severity) -> str:
        """A severity's name in its colour, padded so that names align."""
        return self.paint(f"{severity.name:<8}", *_SEVERITY_STYLES[severity])

    def wrap(self, text: str, indent: str = "", first: str | None = None) -> str:
        """Wrap paragraphs to the width; `first` replaces the indent of the first line."""
        lines: list[str] = []
        for index, paragraph in enumerate(text.splitlines() or [""]):
            first_indent = first if first is not None and index == 0 else indent
            lines += textwrap.wrap(
                paragraph,
                width=self.width,
                initial_indent=first_indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [first_indent.rstrip()]
        return "\n".join(lines)


def terminal_of(stream: TextIO | None = None) -> Terminal:
    """The terminal of a stream. NO_COLOR and FORCE_COLOR are respected; a pipe gets no colours."""
    out = stream or sys.stdout
    if os.environ.get("NO_COLOR"):
        colour = False
    elif os.environ.get("FORCE_COLOR"):
        colour = True
    else:
        colour = out.isatty() and os.environ.get("TERM") != "dumb"
    columns = shutil.get_terminal_size((100, 24)).columns
    return Terminal(width=max(_MIN_WIDTH, min(columns, _MAX_WIDTH)), colour=colour)


def page_text(markdown: str, terminal: Terminal) -> str:
    """A Markdown page as terminal text: bold headings, wrapped paragraphs and lists, code unchanged."""
    return "\n".join(_page_line(line, terminal) for line in _paragraphs(markdown)) + "\n"


def _paragraphs(markdown: str) -> Iterator[str]:
    """Yield the lines, with the lines of one paragraph joined."""
    paragraph: list[str] = []
    for line in markdown.splitlines():
        if line.strip() and not line.startswith(("#", "    ")) and not line.lstrip().startswith("- "):
            paragraph.append(line.strip())
            continue
        if paragraph:
            yield " ".join(paragraph)
            paragraph = []
        yield line
    if paragraph:
        yield " ".join(paragraph)


def _page_line(line: str, terminal: Terminal) -> str:
    content = line.lstrip()
    indent = " " * (len(line) - len(content))
    if line.startswith("#"):
        return terminal.paint(line.lstrip("# "), "bold")
    if content.startswith("- "):
        return terminal.wrap(_plain_text(content[2:]), indent=f"{indent}  ", first=f"{indent}- ")
    if line.startswith("    "):
        return terminal.paint(line, "cyan")
    return terminal.wrap(_plain_text(line))


def _plain_text(line: str) -> str:
    """Remove Markdown markup; a link becomes its text, with the address if that is a URL."""
    without_links = _LINK.sub(lambda found: f"{found[1]} <{found[2]}>" if "://" in found[2] else found[1], line)
    return _ITALIC.sub(r"\1", without_links.replace("**", ""))
