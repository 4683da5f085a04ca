"""Finds torch's own registry of graph breaks."""

import importlib.util
from pathlib import Path


def registry_file() -> Path | None:
    """Return the registry file of the installed torch (2.9 and later) without importing torch; None if there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "_dynamo" / "graph_break_registry.json"
    return file if file.is_file() else None
