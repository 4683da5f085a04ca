"""Colour, width and wrapping for a terminal."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TextIO

from rocsolid.model.finding import Severity

_CODES = {"bold": "1", "dim": "2", "red": "31", "yellow": "33", "green": "32", "cyan": "36", "plain": "0"}
_SEVERITY = {Severity.CRITICAL: ("red", "bold"), Severity.WARNING: ("yellow", "bold"), Severity.INFO: ("cyan",)}
_WIDEST, _NARROWEST = 110, 40
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_STRESSED: Final = re.compile(r"\*(\w+)\*")


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """How much room there is, and whether colours are welcome."""

    width: int = 100
    colour: bool = False

    def paint(self, text: str, *styles: str) -> str:
        """The text in a style, or as it is where colours are not welcome."""
        if not self.colour or not styles:
            return text
        return f"\033[{';'.join(_CODES[s] for s in styles)}m{text}\033[0m"

    def severity(self, severity: Severity) -> str:
        """A severity's name in its colour, padded so that names align."""
        return self.paint(f"{severity.name:<8}", *_SEVERITY[severity])

    def wrap(self, text: str, indent: str = "", first: str | None = None) -> str:
        """Paragraphs wrapped to the width; `first` begins the first line in place of the indent."""
        lines: list[str] = []
        for number, paragraph in enumerate(text.splitlines() or [""]):
            begin = first if first is not None and number == 0 else indent
            lines += textwrap.wrap(
                paragraph,
                width=self.width,
                initial_indent=begin,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [begin.rstrip()]
        return "\n".join(lines)


def terminal_of(stream: TextIO | None = None) -> Terminal:
    """What the stream can show: NO_COLOR and FORCE_COLOR are respected, a pipe gets plain text."""
    out = stream or sys.stdout
    if os.environ.get("NO_COLOR"):
        colour = False
    elif os.environ.get("FORCE_COLOR"):
        colour = True
    else:
        colour = out.isatty() and os.environ.get("TERM") != "dumb"
    columns = shutil.get_terminal_size((100, 24)).columns
    return Terminal(width=max(_NARROWEST, min(columns, _WIDEST)), colour=colour)


def page_text(markdown: str, terminal: Terminal) -> str:
    """A page for a terminal: headings in bold, paragraphs and lists wrapped, code left alone."""
    return "\n".join(_page_line(line, terminal) for line in _paragraphs(markdown)) + "\n"


def _paragraphs(markdown: str) -> Iterator[str]:
    """Lines, with those of one paragraph joined."""
    held: list[str] = []
    for line in markdown.splitlines():
        if line.strip() and not line.startswith(("#", "    ")) and not line.lstrip().startswith("- "):
            held.append(line.strip())
            continue
        if held:
            yield " ".join(held)
            held = []
        yield line
    if held:
        yield " ".join(held)


def _page_line(line: str, terminal: Terminal) -> str:
    bare = line.lstrip()
    indent = " " * (len(line) - len(bare))
    if line.startswith("#"):
        return terminal.paint(line.lstrip("# "), "bold")
    if bare.startswith("- "):
        return terminal.wrap(_spoken(bare[2:]).replace("`", ""), indent=f"{indent}  ", first=f"{indent}- ")
    if line.startswith("    "):
        return terminal.paint(line, "cyan")
    return terminal.wrap(_spoken(line))


def _spoken(line: str) -> str:
    """Without the marks of Markdown: a link is its words, and its address where that leads anywhere from here."""
    linked = _LINK.sub(lambda found: f"{found[1]} ({found[2]})" if "://" in found[2] else found[1], line)
    return _STRESSED.sub(r"\1", linked.replace("**", ""))
