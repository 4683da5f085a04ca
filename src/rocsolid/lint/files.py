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

_MAX_FILE_BYTES: Final = 20_000_000
# Words in the names of files and folders that are not part of the product, and what such a file is called in reports.
_ROLES: Final = {
    "test": "test", "tests": "test", "testing": "test", "unittests": "test", "conftest": "test", "fixtures": "test",
    "bench": "benchmark", "benches": "benchmark", "benchmark": "benchmark", "benchmarks": "benchmark",
    "benchmarking": "benchmark", "perf": "benchmark", "profiling": "benchmark",
    "example": "example", "examples": "example", "demo": "example", "demos": "example", "cookbook": "example",
    "tutorial": "example", "tutorials": "example", "notebooks": "example", "docs": "example", "recipes": "example",
    "samples": "example", "playground": "example",
    "script": "script", "scripts": "script", "tools": "script", "dev": "script", "ci": "script", ".ci": "script",
    ".github": "script", ".buildkite": "script", "devtools": "script", "setup": "script", "experiments": "script",
    "utils_dev": "script", "release": "script", "packaging": "script",
}  # fmt: skip
_ROLE_WORDS_IN_FILE_NAMES: Final = frozenset(
    {"test", "tests", "bench", "benchmark", "conftest", "setup", "example", "demo"}
)


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file to read, and its module name."""

    path: Path
    display_path: str  # path in reports: relative to the current folder where possible
    module: str
    package: bool  # an __init__.py
    role: str = ""  # test, benchmark, example or script; empty for the product


def find_files(paths: Sequence[Path], exclude: Sequence[str]) -> tuple[list[SourceFile], dict[str, str]]:
    """All Python files, shell scripts and Dockerfiles below the paths, and the skipped ones with the reason.

    A file that is given by name is always read.
    """
    found: dict[str, SourceFile] = {}
    skipped: dict[str, str] = {}
    display_folders: dict[str, str] = {}  # what the display paths of the files in a folder begin with
    for root in paths:
        if not os.path.exists(root):  # noqa: PTH110 - Path.exists() raises for a name that is too long
            msg = f"cannot read {root}: no such file or folder"
            raise InputError(msg)
        is_file = root.is_file()
        top = str(root.parent if is_file else root)
        for path in [str(root)] if is_file else _walk(root, exclude, skipped):
            folder, name = os.path.split(path)
            if folder not in display_folders:
                display_folders[folder] = _display_path(Path(folder, "_"))[:-1]
            display_path = _display_path(root) if is_file else f"{display_folders[folder]}{name}"
            if display_path not in found:
                module, package = _module(folder or ".", Path(name).stem, top)
                role = "" if is_file else file_role(path[len(top) :].lstrip(os.sep))
                found[display_path] = SourceFile(
                    path=Path(path), display_path=display_path, module=module, package=package, role=role
                )
    return [found[name] for name in sorted(found)], skipped


def file_role(path: str) -> str:
    """What a file is for, by its path below the linted folder: test, benchmark, example or script; empty for the product."""
    *folders, name = path.lower().replace(os.sep, "/").split("/")
    for folder in folders:
        if role := _ROLES.get(folder) or _ROLES.get(folder.partition("_")[0] if "_" in folder else ""):
            return role
    words = name.partition(".")[0].split("_")
    for word in (words[0], words[-1]):
        if word in _ROLE_WORDS_IN_FILE_NAMES:
            return _ROLES[word]
    return ""


def _walk(root: Path, exclude: Sequence[str], skipped: dict[str, str]) -> Iterator[str]:
    """Files below a folder. Links that form a cycle or lead out of the folder are skipped."""
    top = os.path.realpath(root)
    stack, seen = [str(root)], {top}
    while stack:
        folder = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as refused:
            skipped[_display_path(Path(folder))] = refused.strerror or str(refused)
            continue
        for entry in entries:
            if entry.name in ALWAYS_EXCLUDED or _excluded(entry.path, entry.name, exclude):
                continue
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError as odd:  # such as a link to itself
                is_folder, is_file, reason = False, False, odd.strerror or str(odd)
            else:
                is_file = is_file and (entry.name.endswith(".py") or is_shell(entry.name))
                reason = _why_skipped(entry, top, seen) if is_folder or is_file else ""
            if reason:
                skipped[_display_path(Path(entry.path))] = reason
            elif is_folder:
                stack.append(entry.path)
            elif is_file:
                yield entry.path


def _why_skipped(entry: "os.DirEntry[str]", top: str, seen: set[str]) -> str:
    """Return why a file or folder is not read; the real paths of folders that are read are added to `seen`."""
    if not _is_utf8(entry.name):
        return "its name is not UTF-8"
    if any(ord(character) < ord(" ") for character in entry.name):  # a line break could imitate a finding
        return "its name contains control characters"
    if not entry.is_symlink() and not entry.is_dir():
        return _too_large(entry)
    real = os.path.realpath(entry.path)
    if entry.is_symlink() and not (real == top or real.startswith(top.rstrip(os.sep) + os.sep)):
        return "a link out of the folder"
    if entry.is_dir():
        known = real in seen
        seen.add(real)
        return "a link to a folder that is read already" if known else ""
    return _too_large(entry)


def _too_large(entry: "os.DirEntry[str]") -> str:
    return "larger than 20 MB" if entry.stat().st_size > _MAX_FILE_BYTES else ""


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _excluded(path: str, name: str, exclude: Sequence[str]) -> bool:
    display_path = path.removeprefix("./")
    return any(
        fnmatch(name, pattern) or fnmatch(display_path, pattern) or fnmatch(display_path, f"*/{pattern}")
        for pattern in exclude
    )


def _display_path(path: Path) -> str:
    """Return the path relative to the current folder if it is below it; always with forward slashes."""
    whole = path.absolute()
    shown = (whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole).as_posix()
    shown = shown if _is_utf8(shown) else os.fsencode(shown).decode("utf-8", "backslashreplace")
    return shown.replace("\n", "\\n")


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
