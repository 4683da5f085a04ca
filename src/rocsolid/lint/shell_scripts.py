"""Translates shell scripts and Dockerfiles to Python, as far as they set environment variables.

Each line that sets variables becomes equivalent Python; all other lines become blank. So the rules about variables apply to
these files too, with the right line numbers.
"""

import re
import shlex
from typing import Final

_ASSIGNING_LINE: Final = re.compile(r"\s*(?:(?:export|ENV|RUN|env|declare -x)\s+)*(?P<rest>[A-Z][A-Z0-9_]*=.*)")
_ASSIGNMENT: Final = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE_USE: Final = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")


def is_shell(name: str) -> bool:
    """Whether a file is a shell script or a Dockerfile, by its name."""
    last = name.rpartition("/")[2]
    return last.endswith((".sh", ".bash", ".Dockerfile")) or last.startswith("Dockerfile")


def as_python(text: str) -> str:
    """Return Python that sets the same variables as the script, line by line."""
    used = set(_VARIABLE_USE.findall(text))
    lines = ["; ".join(_assignments(line, used)) for line in text.splitlines()]
    first = next((number for number, line in enumerate(lines) if line), 0)
    if lines:
        lines[first] = f"import os; {lines[first]}" if lines[first] else ""
    return "\n".join(lines) + "\n"


def _assignments(line: str, used: set[str]) -> list[str]:
    match = _ASSIGNING_LINE.match(line)
    if not match:
        return []
    try:
        words = shlex.split(match["rest"], comments=True)
    except ValueError:  # an open quote: the string continues on the next line
        words = match["rest"].split("#")[0].split()
    found: list[str] = []
    for word in words:
        assignment = _ASSIGNMENT.fullmatch(word)
        if not assignment:
            break  # the command that runs with the variables
        if assignment[1] not in used:  # a variable that the script itself reads is not for torch
            found.append(f"os.environ[{assignment[1]!r}] = {assignment[2]!r}")
    return found
