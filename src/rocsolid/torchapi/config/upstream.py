"""The config files of each official torch release: their digests, and the defaults that they define.

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
    digests: Mapping[str, str]  # SHA-256 of each config file, by module: inductor, dynamo, ...
    values: Mapping[str, object]
    hip_values: Mapping[str, object]  # the defaults that are different in a ROCm build

    def default(self, setting_id: str, *, hip: bool) -> object:
        """Return the default of a setting; raises KeyError if this release does not have the setting."""
        if hip and setting_id in self.hip_values:
            return self.hip_values[setting_id]
        return self.values[setting_id]


def release_of(version: str) -> str:
    """Return the official release of a version: "2.13.0" for `2.13.0+rocm7.2`, and "" for `2.14.0a0`, which is not an official release."""
    match = _OFFICIAL.match(version)
    return match[1] if match else ""


def upstream(version: str) -> UpstreamRelease | None:
    """Return the defaults of the release of that version; None if the table does not have it."""
    return _releases().get(release_of(version))


def known_releases() -> tuple[str, ...]:
    """Return the releases in the table, oldest first."""
    return tuple(_releases())


@cache
def _releases() -> dict[str, UpstreamRelease]:
    table: list[dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))["releases"]
    releases: dict[str, UpstreamRelease] = {}
    values: dict[str, object] = {}
    for row in table:
        # Each row stores the changes since the previous one.
        values = {k: v for k, v in values.items() if k not in set(row["gone"])} | row["set"]
        releases[row["release"]] = UpstreamRelease(
            release=row["release"], digests=row["digests"], values=values, hip_values=row["hip"]
        )
    return releases


def to_json_value(value: object) -> object:
    """Convert a value to the types that the JSON table has: tuples and sets become lists."""
    if isinstance(value, (set, frozenset)):
        return sorted((to_json_value(v) for v in value), key=str)
    if isinstance(value, (list, tuple)):
        return [to_json_value(v) for v in value]
    if isinstance(value, dict):
        return {str(k): to_json_value(v) for k, v in value.items()}
    return value
