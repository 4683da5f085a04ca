"""Read files and folders that may not exist."""

from pathlib import Path


def read_text(file: Path) -> str:
    """The file's text, stripped; empty when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def children(folder: Path) -> list[Path]:
    """The entries of a folder, sorted; empty when it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
