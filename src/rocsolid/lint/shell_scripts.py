"""Translates shell scripts and Dockerfiles to Python, as far as they set environment variables or call NVIDIA's tools.

Each such line becomes equivalent Python; all other lines become blank. So the rules about variables and tools apply to these
files too, with the right line numbers.
"""

import re
import shlex
from typing import Final

_ASSIGNING_LINE: Final = re.compile(r"\s*(?:(?:export|ENV|RUN|env|declare -x)\s+)*(?P<rest>[A-Z][A-Z0-9_]*=.*)")
_ASSIGNMENT: Final = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
# A tool as a command: first in the line, or after `$(`, `|`, `;` or `&&`.
_TOOL: Final = re.compile(r"(?:^|[;|&(`])\s*(?:(?:sudo|RUN|exec)\s+)*(nvidia-smi|nvcc)(?=\s|$|\))")
# In such a line a missing tool is handled.
_HANDLED: Final = re.compile(r"\|\||2>\s*/dev/null|&>|^\s*(?:if|elif|while)\b")
# A script with one of these words looks whether the tool exists, knows AMD GPUs, or is for a machine of NVIDIA.
_KNOWS_VENDOR: Final = re.compile(
    r"(?:command -v|which|type|hash|-x \S*)\s*(?:nvidia-smi|nvcc)|rocm|hipcc|amd-smi|FROM nvidia|download\.nvidia|cuda[-_](?:toolkit|repo|drivers)|[hab][12]00|-cuda",
    re.IGNORECASE,
)
_QUOTING: Final = re.compile(r"[\"'\\#]")
_VARIABLE_USE: Final = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")


def is_shell(name: str) -> bool:
    """Whether a file is a shell script or a Dockerfile, by its name."""
    last = name.rpartition("/")[2]
    return last.endswith((".sh", ".bash", ".Dockerfile")) or last.startswith("Dockerfile")


def as_python(text: str) -> str:
    """Return Python that sets the same variables as the script and calls the same tools, line by line."""
    used = set(_VARIABLE_USE.findall(text))
    for_all = "nv" in text and not _KNOWS_VENDOR.search(text)  # the search takes as long as the rest
    lines = ["; ".join([*_assignments(line, used), *(_tools(line) if for_all else ())]) for line in text.splitlines()]
    first = next((number for number, line in enumerate(lines) if line), 0)
    if lines:
        lines[first] = f"import os; {lines[first]}" if lines[first] else ""
    return "\n".join(lines) + "\n"


def _tools(line: str) -> list[str]:
    if line.lstrip().startswith("#") or _HANDLED.search(line):
        return []
    return [f"subprocess.run([{tool!r}])" for tool in _TOOL.findall(line)]


def _assignments(line: str, used: set[str]) -> list[str]:
    match = _ASSIGNING_LINE.match(line)
    if not match:
        return []
    try:
        words = _words(match["rest"])
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


def _words(text: str) -> list[str]:
    """Split a line of a script into words; `shlex` reads character by character, so only where the line has quotes or a comment."""
    return shlex.split(text, comments=True) if _QUOTING.search(text) else text.split()
