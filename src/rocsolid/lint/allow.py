"""Comments that allow a hazard: `# rocsolid: allow[hazard-name] the reason`."""

import re
from collections.abc import Iterator
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
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line) if "rocsolid:" in line else None
        if not match:
            continue
        own_line = line.lstrip().startswith("#")
        yield Allow(
            line=_next_code(lines, number) if own_line else number,
            names=tuple(name.strip() for name in match["names"].split(",") if name.strip()),
            reason=match["reason"].lstrip("-–—: "),
            whole_file=bool(match["file"]),
            own_line=own_line,
        )


def _next_code(lines: list[str], number: int) -> int:
    for later in range(number, len(lines)):
        bare = lines[later].strip()
        if bare and not bare.startswith("#"):
            return later + 1
    return number
