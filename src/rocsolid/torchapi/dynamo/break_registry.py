"""Where torch keeps its register of graph breaks."""

import importlib.util
from pathlib import Path


def registry_file() -> Path | None:
    """The register that came with the installed torch, found without importing it; since torch 2.9."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "_dynamo" / "graph_break_registry.json"
    return file if file.is_file() else None
