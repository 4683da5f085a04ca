"""Finds out whether the project itself reads an environment variable, in any of its languages."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rocsolid.lint.files import ALWAYS_EXCLUDED

_SUFFIXES: Final = (
    ".py", ".pyi", ".sh", ".bash", ".cmake", ".txt", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".hip", ".rs", ".go",
    ".toml", ".cfg", ".yaml", ".yml", ".mk", ".js", ".ts", ".in", ".ini", ".ipynb", ".jinja",
)  # fmt: skip
_NAMES: Final = ("Dockerfile", "Makefile", "Jenkinsfile")
_MAX_BYTES: Final = 2_000_000
# `getenv("X")`, `environ.get("X")`, `env_bool("X")`, `"X" in os.environ`, `environ["X"]`, `"X": lambda`, `$X`, `$ENV{X}`.
_READ: Final = (
    r"(?i:\w*env\w*)(?:\.\w+)*(?<!setdefault)(?<!putenv)(?<!setenv)(?<!delenv)\s*\(\s*[rb]?[\"']({names})[\"']"
    r"|[\"']({names})[\"']\s+(?:not\s+)?in\b|environ\[[\"']({names})[\"']\](?!\s*=[^=])"
    r"|[\"']({names})[\"']\s*:\s*lambda|\$\{{?({names})\b|ENV\{{({names})\}}"
)


def variables_read(names: Iterable[str], roots: Sequence[Path]) -> set[str]:
    """Those of the names that a file below the roots reads."""
    wanted = sorted(set(names))
    if not wanted:
        return set()
    pattern = re.compile(_READ.format(names="|".join(map(re.escape, wanted))))
    unknown = {name: name.encode("utf-8", "surrogatepass") for name in wanted}  # "\ud800" in the source
    found: set[str] = set()
    for root in roots:
        folders = os.walk(root) if root.is_dir() else [(str(root.parent), [], [root.name])]
        for folder, subfolders, files in folders:
            subfolders[:] = [name for name in subfolders if name not in ALWAYS_EXCLUDED]
            for file in files:
                if file.endswith(_SUFFIXES) or any(name in file for name in _NAMES):
                    data = _read(Path(folder, file))
                    if any(name in data for name in unknown.values()):
                        text = data.decode("utf-8", "replace")
                        found.update(name for match in pattern.finditer(text) for name in match.groups() if name)
                        unknown = {name: encoded for name, encoded in unknown.items() if name not in found}
    return found


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() and file.stat().st_size <= _MAX_BYTES else b""
    except OSError:
        return b""
