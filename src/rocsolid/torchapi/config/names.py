"""Every name that the config modules of any supported release have; written by `scripts/gather_names.py`."""

import json
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("names.json")


@cache
def config_names(owner: str) -> frozenset[str]:
    """The names of one module, `inductor` say, dots and all; empty for a module we do not know."""
    return frozenset(json.loads(_TABLE.read_text(encoding="utf-8")).get(owner, ()))
