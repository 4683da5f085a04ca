"""Finds the files to lint, and their module names."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.lint.shell_scripts import is_shell

ALWAYS_EXCLUDED: Final = (
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "__pycache__", "node_modules", "site-packages",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".rocsolid", ".eggs",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file to read, and its module name."""

    path: Path
    display_path: str  # path in reports: relative to the current folder where possible
    module: str
    package: bool  # an __init__.py


def find_files(paths: Sequence[Path], exclude: Sequence[str]) -> tuple[list[SourceFile], dict[str, str]]:
    """All Python files, shell scripts and Dockerfiles below the paths, and the skipped ones with the reason.

    A file that is given by name is always read.
    """
    found: dict[str, SourceFile] = {}
    skipped: dict[str, str] = {}
    for root in paths:
        if not root.exists():
            msg = f"cannot read {root}: no such file or folder"
            raise InputError(msg)
        files = [root] if root.is_file() else _walk(root, exclude, skipped)
        for path in files:
            display_path = _display_path(path)
            if display_path not in found:
                module, package = _module(str(path.parent), path.stem, str(root if root.is_dir() else root.parent))
                found[display_path] = SourceFile(path=path, display_path=display_path, module=module, package=package)
    return [found[name] for name in sorted(found)], skipped


def _walk(root: Path, exclude: Sequence[str], skipped: dict[str, str]) -> Iterator[Path]:
    """Files below a folder. Links that form a cycle are skipped."""
    stack = [(str(root), os.path.realpath(root))]
    seen = {stack[0][1]}
    while stack:
        folder, _ = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as refused:
            skipped[_display_path(Path(folder))] = refused.strerror or str(refused)
            continue
        for entry in entries:
            if entry.name in ALWAYS_EXCLUDED or _excluded(entry.path, entry.name, exclude):
                continue
            if entry.is_dir():
                real = os.path.realpath(entry.path)
                if real not in seen:
                    seen.add(real)
                    stack.append((entry.path, real))
                elif entry.is_symlink():
                    skipped[_display_path(Path(entry.path))] = "a link to a folder that is read already"
            elif (entry.name.endswith(".py") or is_shell(entry.name)) and entry.is_file():
                yield Path(entry.path)


def _excluded(path: str, name: str, exclude: Sequence[str]) -> bool:
    display_path = path.removeprefix("./")
    return any(
        fnmatch(name, pattern) or fnmatch(display_path, pattern) or fnmatch(display_path, f"*/{pattern}")
        for pattern in exclude
    )


def _display_path(path: Path) -> str:
    """Return the path relative to the current folder if it is below it; always with forward slashes."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.absolute().as_posix()


def _module(folder: str, stem: str, root: str) -> tuple[str, bool]:
    package = stem == "__init__"
    above = _package_parts(folder)
    parts = [*above, *([] if package else [stem])]
    if not above and not package:  # no package: use the folders below the root as the module name
        below = Path(os.path.relpath(folder, root)).parts
        parts = [*(p for p in below if p not in (".", "..")), stem]
    return ".".join(parts), package


@cache
def _package_parts(folder: str) -> tuple[str, ...]:
    if not Path(folder, "__init__.py").is_file():
        return ()
    parent = str(Path(folder).parent)
    return (*_package_parts(parent), Path(folder).name) if parent != folder else (Path(folder).name,)
