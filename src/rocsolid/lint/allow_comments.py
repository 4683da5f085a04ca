"""Comments that allow a finding: `# rocsolid: allow[hazard-name] reason`."""

import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from typing import Final, NamedTuple

_COMMENT: Final = re.compile(r"#\s*rocsolid:\s*allow(?P<file>-file)?\s*\[(?P<names>[^\]]*)\]\s*(?P<reason>.*?)\s*$")


class Allow(NamedTuple):
    """One allow comment; without a reason it has no effect."""

    line: int
    names: tuple[str, ...]
    reason: str
    whole_file: bool = False
    own_line: bool = False  # on a line of its own: applies to the next line of code

    def covers(self, line: int, code: str, name: str) -> bool:
        """Whether the comment allows a finding of that rule at that line."""
        if not self.reason or not {code, name} & set(self.names):
            return False
        return self.whole_file or line == self.line


def find_allow_comments(text: str) -> Iterator[Allow]:
    """The allow comments of a file; one on a line of its own gets the line number of the code below it."""
    if "rocsolid:" not in text:
        return
    lines = text.splitlines()
    for line_number, comment in _comments(text, lines):
        match = _COMMENT.search(comment)
        if not match:
            continue
        own_line = lines[line_number - 1].lstrip().startswith("#")
        yield Allow(
            line=_next_code_line(lines, line_number) if own_line else line_number,
            names=tuple(name.strip() for name in match["names"].split(",") if name.strip()),
            reason=match["reason"].lstrip("-–—: "),
            whole_file=bool(match["file"]),
            own_line=own_line,
        )


def _comments(text: str, lines: list[str]) -> list[tuple[int, str]]:
    """Return the comments with their line numbers; text in strings is no comment. For other files than Python: all lines that may be one."""
    try:
        tokens = list(tokenize.generate_tokens(StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return [(number, line) for number, line in enumerate(lines, 1) if "rocsolid:" in line]
    return [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]


def _next_code_line(lines: list[str], line_number: int) -> int:
    for index in range(line_number, len(lines)):
        text = lines[index].strip()
        if text and not text.startswith("#"):
            return index + 1
    return line_number
