"""Options of the linter: `[tool.rocsolid.lint]` in pyproject.toml, overridden by the caller."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.chips import parse_pretended_chip
from rocsolid.catalog.support import TESTED_TORCH
from rocsolid.errors import InputError, UnknownNameError
from rocsolid.model.codec import parse_toml, read_text
from rocsolid.model.environment import Device, Environment, ProbeMode, TorchBuild
from rocsolid.model.finding import Rule
from rocsolid.model.source import Confidence
from rocsolid.rules.engine import rule

_TEXT_KEYS: Final = ("confidence", "fail-on", "baseline", "target")
_MAX_BYTES: Final = 16 << 20
FAIL_ON: Final = ("critical", "warning", "info", "never")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options; each field is a key of the table, which spells it with hyphens."""

    select: tuple[str, ...] = ()  # codes, prefixes of codes or names; empty: the rules that are on by default
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # patterns of files and folders
    confidence: str = "reachable"
    fail_on: str = "warning"
    baseline: str = ""
    all_files: bool = False  # also tests, benchmarks, examples and scripts
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target: str = ""  # CHIP[@RELEASE]; values of settings are judged for that GPU

    def __post_init__(self) -> None:
        if self.confidence.upper() not in Confidence.__members__:
            known = [c.name.lower() for c in Confidence]
            raise UnknownNameError(kind="confidence", name=self.confidence, known=known)
        if self.fail_on not in FAIL_ON:
            raise UnknownNameError(kind="severity for fail-on", name=self.fail_on, known=FAIL_ON)
        if self.target:
            parse_pretended_chip(self.target)  # raises UnknownNameError with the known chips
        for name in (*self.select, *self.ignore, *(n for names in self.per_file_ignores.values() for n in names)):
            if not _is_prefix(name):
                rule(name)  # raises UnknownNameError with similar names

    @property
    def min_confidence(self) -> Confidence:
        """Findings below this confidence are not reported."""
        return Confidence[self.confidence.upper()]

    @property
    def target_environment(self) -> Environment | None:
        """A machine with the target's GPU and the newest torch that was tested, so not with the one that happens to be here; or None."""
        if not self.target:
            return None
        target = parse_pretended_chip(self.target)
        chip = target.chip
        device = Device(
            index=0, name=chip.product, arch=chip.arch, memory_bytes=chip.memory_gib << 30, platform=chip.platform
        )
        return Environment(
            taken_at="",
            probe_mode=ProbeMode.STATIC,
            platform=chip.platform,
            rocm_version=target.rocm,
            cuda_version=target.cuda,
            python="",
            torch=TorchBuild(version=max(TESTED_TORCH), hip=target.hip, cuda=target.cuda),
            devices=(device,),
            pretended=str(target),
        )

    def includes(self, rule: Rule, file: str) -> bool:
        """Whether findings of that rule in that file are reported."""
        code, name = rule.code, rule.name
        if not (_matches_any(self.select, code, name) if self.select else rule.on_by_default):
            return False
        if _matches_any(self.ignore, code, name):
            return False
        return not any(
            fnmatch(file, pattern) or fnmatch(file, f"*/{pattern}")
            for pattern, names in self.per_file_ignores.items()
            if _matches_any(names, code, name)
        )


def _is_prefix(name: str) -> bool:
    return name.isupper() and name.startswith("SRC"[: len(name)]) and len(name) < len("SRC000")


def _matches_any(names: Sequence[str], code: str, name: str) -> bool:
    return any(n == name or (n == code if len(n) == len(code) else n.isupper() and code.startswith(n)) for n in names)


def find_pyproject(start: Path) -> Path | None:
    """The nearest pyproject.toml at or above a path."""
    folder = start.absolute() if start.is_dir() else start.absolute().parent
    return next((f / "pyproject.toml" for f in (folder, *folder.parents) if (f / "pyproject.toml").is_file()), None)


def read_options(file: Path | None, **overrides: Any) -> Options:  # noqa: ANN401 - the fields of Options
    """The options in a pyproject.toml, with the overrides that are not None."""
    table = _table(file) if file else {}
    known = {f.name.replace("_", "-"): f.name for f in fields(Options)}
    for key in table:
        if key not in known:
            raise UnknownNameError(kind="key", where=f"[tool.rocsolid.lint] in {file}", name=key, known=known)
    values = {known[key]: _value(key, value, file) for key, value in table.items()}
    return Options(**{**values, **{name: value for name, value in overrides.items() if value is not None}})


def _value(key: str, value: object, file: Path | None) -> object:
    if key == "baseline" and isinstance(value, str) and file:
        return str(file.parent / value)  # relative to pyproject.toml
    if key in _TEXT_KEYS and isinstance(value, str):
        return value
    if key == "all-files" and isinstance(value, bool):
        return value
    if key in ("select", "ignore", "exclude") and isinstance(value, list):
        return tuple(str(v) for v in value)
    if key == "per-file-ignores" and isinstance(value, dict) and all(isinstance(n, list) for n in value.values()):
        return {str(pattern): tuple(map(str, names)) for pattern, names in value.items()}
    kinds = {"per-file-ignores": "a table", "all-files": "true or false"}
    expected = kinds.get(key, "text" if key in _TEXT_KEYS else "a list")
    msg = f"{file}: {key} in [tool.rocsolid.lint] is {value!r}; expected {expected}"
    raise InputError(msg)


def _table(file: Path) -> dict[str, Any]:
    table: Any = parse_toml(read_text(file, max_bytes=_MAX_BYTES), str(file))
    path = ""
    for name in ("tool", "rocsolid", "lint"):
        path = f"{path}.{name}".lstrip(".")
        table = table.get(name, {})
        if not isinstance(table, dict):
            msg = f"{file}: `{path}` must be a table, not {str(table)[:40]!r}"
            raise InputError(msg)
    return dict(table)
