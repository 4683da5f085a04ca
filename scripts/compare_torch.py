"""Print what changed between two torch releases, and what the catalogue lacks.

    python scripts/compare_torch.py torch-2.14.1-*.whl torch-2.15.0-*.whl
    python scripts/compare_torch.py /path/to/old/site-packages/torch /path/to/new/site-packages/torch

Compares the config entries with their defaults (also those of a ROCm build), the environment variables that the Python files read, the
modes of torch.compile, and the private names that rocsolid uses. Nothing of torch is imported. Small wheels:

    pip download --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --python-version 3.11 torch==2.15.0
"""

import ast
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocsolid.catalog.registry import find
from rocsolid.torchapi.config.source import Build, read_configs
from rocsolid.torchapi.name_probes import load_all_names
from rocsolid.torchapi.private_api import PrivateName

READ_VARIABLE = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|getenv\s*\(|get_tristate_env\s*\(|env_name_\w+\s*=)\s*\(?\s*["']([A-Z][A-Z0-9_]{3,})["']"""
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """What one release has."""

    version: str
    settings: dict[str, object]
    rocm_settings: dict[str, object]  # those whose default differs in a ROCm build
    variables: frozenset[str]
    modes: dict[str, str]
    names: dict[str, bool]  # private names that rocsolid uses, and whether the source has them


def main() -> None:
    """Read two releases and print the differences."""
    if len(sys.argv) != 3:  # noqa: PLR2004 - old and new
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        old, new = (read(unpacked(Path(path), Path(folder) / str(n))) for n, path in enumerate(sys.argv[1:]))
    print("\n".join(differences(old, new)))


def unpacked(path: Path, folder: Path) -> Path:
    """The torch folder: of a wheel, its Python files in a temporary folder."""
    if path.is_dir():
        return path
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(
            folder, [name for name in wheel.namelist() if name.startswith("torch/") and name.endswith(".py")]
        )
    return folder / "torch"


def read(torch: Path) -> Release:
    """Read one release from its Python files."""
    version = re.search(r"__version__ = '([^']+)'", (torch / "version.py").read_text(encoding="utf-8"))
    assert version
    build = Build(version=version[1])
    (plain,) = read_configs(torch, [{}], build)
    (rocm,) = read_configs(torch, [{}], Build(version=version[1], hip="7.2.0"))
    text = {file: file.read_text(encoding="utf-8", errors="replace") for file in torch.rglob("*.py")}
    return Release(
        version=version[1],
        settings={name: entry.value for name, entry in plain.items()},
        rocm_settings={n: e.value for n, e in rocm.items() if n in plain and repr(plain[n].value) != repr(e.value)},
        variables=frozenset(found for source in text.values() for found in READ_VARIABLE.findall(source)),
        modes=modes(text.get(torch / "_inductor/__init__.py", "")),
        names={
            str(name): in_source(name, torch) for name in load_all_names() if not name.module.startswith("torch._C")
        },
    )


def modes(source: str) -> dict[str, str]:
    """The modes of torch.compile and their options, from the dictionary in `list_mode_options`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "list_mode_options":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Dict) and any(
                    getattr(k, "value", "") == "reduce-overhead" for k in inner.keys
                ):
                    return {
                        str(key.value): ast.unparse(value)
                        for key, value in zip(inner.keys, inner.values, strict=True)
                        if isinstance(key, ast.Constant)
                    }
    return {}


def in_source(name: PrivateName, torch: Path) -> bool:
    """Whether the module's source contains the name: a quick look, which the probes of the installed release confirm."""
    path = torch.joinpath(*name.module.split(".")[1:])
    files = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
    wanted = name.name if name.text else name.attribute
    return any(wanted in file.read_text(encoding="utf-8", errors="replace") for file in files)


def differences(old: Release, new: Release) -> Iterator[str]:
    """Yield the report, line by line."""
    yield f"torch {old.version} -> {new.version}"
    added = sorted(new.settings.keys() - old.settings.keys())
    yield f"\nnew settings ({len(added)}); those marked with * have no page in the catalogue"
    for name in added:
        yield f"  {'  ' if find(name) else '* '}{name} = {new.settings[name]!r}{on_rocm(new, name)}"
    yield "\nremoved settings"
    for name in sorted(old.settings.keys() - new.settings.keys()):
        yield f"  {name}{' (declared in the catalogue: set `valid`)' if find(name) else ''}"
    yield from other_defaults(old, new)
    yield "\nnew environment variables; * is not in the catalogue"
    for name in sorted(new.variables - old.variables):
        yield f"  {'  ' if find(name) else '* '}{name}"
    yield "\nremoved environment variables"
    yield from (f"  {name}" for name in sorted(old.variables - new.variables))
    yield "\nmodes"
    for mode in sorted(old.modes.keys() | new.modes.keys()):
        if old.modes.get(mode) != new.modes.get(mode):
            yield f"  {mode}: {old.modes.get(mode)} -> {new.modes.get(mode)}"
    yield "\nprivate names that the new source does not contain"
    for declared in load_all_names():
        gone = old.names.get(str(declared), False) and not new.names[str(declared)]
        if gone and declared.releases.holds(new.version):
            yield f"  {declared}: declared for torch {declared.releases}; without it, {declared.without}"


def other_defaults(old: Release, new: Release) -> Iterator[str]:
    """Yield the settings whose default changed, in any build or only in that for ROCm."""
    yield "\nother defaults"
    for name in sorted(old.settings.keys() & new.settings.keys()):
        before, after = old.settings[name], new.settings[name]
        if repr(before) != repr(after):
            yield f"  {name}: {before!r} -> {after!r}{on_rocm(new, name)}"
        elif repr(old.rocm_settings.get(name)) != repr(new.rocm_settings.get(name)):
            yield f"  {name}: {after!r}, on ROCm {old.rocm_settings.get(name, before)!r} -> {new.rocm_settings.get(name, after)!r}"


def on_rocm(release: Release, name: str) -> str:
    """The default of a ROCm build, where it differs."""
    return f" (on ROCm {release.rocm_settings[name]!r})" if name in release.rocm_settings else ""


if __name__ == "__main__":
    main()
