"""Reading files that may not be there."""

from pathlib import Path


def read_text(file: Path) -> str:
    """The file's text without surrounding space; nothing when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def children(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing when it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
