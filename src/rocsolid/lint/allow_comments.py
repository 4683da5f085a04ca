"""Comments that allow a hazard: `# rocsolid: allow[hazard-name] the reason`."""

import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from typing import Final, NamedTuple

_COMMENT: Final = re.compile(r"#\s*rocsolid:\s*allow(?P<file>-file)?\s*\[(?P<names>[^\]]*)\]\s*(?P<reason>.*?)\s*$")


class Allow(NamedTuple):
    """One such comment; without a reason it allows nothing."""

    line: int
    names: tuple[str, ...]
    reason: str
    whole_file: bool = False
    own_line: bool = False  # stands alone, and so speaks for the next line of code

    def covers(self, line: int, code: str, name: str) -> bool:
        """Whether a finding there is allowed."""
        if not self.reason or not {code, name} & set(self.names):
            return False
        return self.whole_file or line == self.line


def allows(text: str) -> Iterator[Allow]:
    """The comments of a file; one that stands alone is moved to the line of code below it."""
    if "rocsolid:" not in text:
        return
    lines = text.splitlines()
    for number, comment in _comments(text, lines):
        match = _COMMENT.search(comment)
        if not match:
            continue
        own_line = lines[number - 1].lstrip().startswith("#")
        yield Allow(
            line=_next_code(lines, number) if own_line else number,
            names=tuple(name.strip() for name in match["names"].split(",") if name.strip()),
            reason=match["reason"].lstrip("-–—: "),
            whole_file=bool(match["file"]),
            own_line=own_line,
        )


def _comments(text: str, lines: list[str]) -> list[tuple[int, str]]:
    """Comments with their lines; what looks like one in a text is none. A script that is no Python has its lines."""
    try:
        tokens = list(tokenize.generate_tokens(StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return [(number, line) for number, line in enumerate(lines, 1) if "rocsolid:" in line]
    return [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]


def _next_code(lines: list[str], number: int) -> int:
    for later in range(number, len(lines)):
        bare = lines[later].strip()
        if bare and not bare.startswith("#"):
            return later + 1
    return number
