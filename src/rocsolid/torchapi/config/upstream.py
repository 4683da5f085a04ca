"""What each official torch release shipped: digests of its config files, and the defaults they define.

`scripts/gather_upstream.py` writes the table `upstream.json` from the official wheels. With it we can tell whether a config
file of the installed torch was changed after its release.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("upstream.json")
_OFFICIAL = re.compile(r"(\d+\.\d+\.\d+)(?:\+[\w.]+)?$")


@dataclass(frozen=True, kw_only=True)
class UpstreamRelease:
    """The defaults of one official release."""

    release: str
    digests: Mapping[str, str]  # SHA-256 by owner: inductor, dynamo, ...
    values: Mapping[str, object]
    hip_values: Mapping[str, object]  # where a ROCm build differs

    def default(self, setting_id: str, *, hip: bool) -> object:
        """The default in that release; raises KeyError for a setting that it does not have."""
        if hip and setting_id in self.hip_values:
            return self.hip_values[setting_id]
        return self.values[setting_id]


def release_of(version: str) -> str:
    """The official release of a version string, or an empty string: `2.13.0+rocm7.2` is 2.13.0, `2.14.0a0` is none."""
    match = _OFFICIAL.match(version)
    return match[1] if match else ""


def upstream(version: str) -> UpstreamRelease | None:
    """The defaults shipped as `version`, if the table has them."""
    return _releases().get(release_of(version))


def known_releases() -> tuple[str, ...]:
    """The releases in the table, oldest first."""
    return tuple(_releases())


@cache
def _releases() -> dict[str, UpstreamRelease]:
    table: list[dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))["releases"]
    found: dict[str, UpstreamRelease] = {}
    values: dict[str, object] = {}
    for row in table:
        # Each row stores the changes since the previous one.
        values = {k: v for k, v in values.items() if k not in set(row["gone"])} | row["set"]
        found[row["release"]] = UpstreamRelease(
            release=row["release"], digests=row["digests"], values=values, hip_values=row["hip"]
        )
    return found


def plain(value: object) -> object:
    """A value as the table stores it: tuples and sets become lists."""
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v) for v in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value
