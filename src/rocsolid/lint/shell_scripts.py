"""Environment variables that shell scripts and Dockerfiles set.

Each line that sets variables is translated to equivalent Python; all other lines become blank. So the rules about variables
apply to both, with the same line numbers.
"""

import re
import shlex
from typing import Final

_LINE: Final = re.compile(r"\s*(?:(?:export|ENV|RUN|env|declare -x)\s+)*(?P<rest>[A-Z][A-Z0-9_]*=.*)")
_ASSIGNED: Final = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
_USED: Final = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")


def is_shell(name: str) -> bool:
    """Whether a file is a shell script or a Dockerfile, by its name."""
    last = name.rpartition("/")[2]
    return last.endswith((".sh", ".bash", ".Dockerfile")) or last.startswith("Dockerfile")


def as_python(text: str) -> str:
    """The script as Python that sets the same variables, line by line."""
    used = set(_USED.findall(text))
    lines = ["; ".join(_assignments(line, used)) for line in text.splitlines()]
    first = next((number for number, line in enumerate(lines) if line), 0)
    if lines:
        lines[first] = f"import os; {lines[first]}" if lines[first] else ""
    return "\n".join(lines) + "\n"


def _assignments(line: str, used: set[str]) -> list[str]:
    match = _LINE.match(line)
    if not match:
        return []
    try:
        words = shlex.split(match["rest"], comments=True)
    except ValueError:  # an open quote: the string continues on the next line
        words = match["rest"].split("#")[0].split()
    found: list[str] = []
    for word in words:
        assigned = _ASSIGNED.fullmatch(word)
        if not assigned:
            break  # the command that gets the variables
        if assigned[1] not in used:  # the script reads it itself
            found.append(f"os.environ[{assigned[1]!r}] = {assigned[2]!r}")
    return found
