"""Every entry name of the config modules in all supported releases; written by `scripts/gather_names.py`."""

import json
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("names.json")


@cache
def config_names(owner: str) -> frozenset[str]:
    """Return the entry names of one module such as `inductor`, with dots for nested entries; empty for an unknown module."""
    return frozenset(json.loads(_TABLE.read_text(encoding="utf-8")).get(owner, ()))
