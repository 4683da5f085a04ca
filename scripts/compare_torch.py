"""Print what changed between two torch releases, and what the catalogue lacks.

    python scripts/compare_torch.py torch-2.14.1-*.whl torch-2.15.0-*.whl
    python scripts/compare_torch.py /path/to/old/site-packages/torch /path/to/new/site-packages/torch

Compares the config entries with their defaults (also those of a ROCm build), the environment variables that the Python files read, the
modes of torch.compile, the public names, and the private names that rocsolid uses, those of torch._C by torch's own stubs and uses.
Nothing of torch is imported. Small wheels:

    pip download --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --python-version 3.11 torch==2.15.0
"""

import ast
import re
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocsolid.catalog.registry import find
from rocsolid.torchapi.config.source import Build, read_configs
from rocsolid.torchapi.name_probes import load_all_names
from rocsolid.torchapi.private_api import PrivateName

READ_VARIABLE = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|getenv\s*\(|get_tristate_env\s*\(|env_name_\w+\s*=)\s*\(?\s*["']([A-Z][A-Z0-9_]{3,})["']"""
)
WORD = re.compile(r"\b[A-Za-z_]\w+")


@dataclass(frozen=True, kw_only=True)
class Release:
    """What one release has."""

    version: str
    settings: dict[str, object]
    rocm_settings: dict[str, object]  # those whose default differs in a ROCm build
    variables: frozenset[str]
    modes: dict[str, str]
    names: dict[str, bool]  # private names that rocsolid uses, and whether the source has them
    public: frozenset[str]  # what public modules list in __all__


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
            folder, [name for name in wheel.namelist() if name.startswith("torch/") and name.endswith((".py", ".pyi"))]
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
    stubs = (file.read_text(encoding="utf-8", errors="replace") for file in torch.rglob("*.pyi"))
    words = frozenset(word for source in (*text.values(), *stubs) for word in WORD.findall(source))
    return Release(
        version=version[1],
        settings={name: entry.value for name, entry in plain.items()},
        rocm_settings={n: e.value for n, e in rocm.items() if n in plain and repr(plain[n].value) != repr(e.value)},
        variables=frozenset(found for source in text.values() for found in READ_VARIABLE.findall(source)),
        modes=modes(text.get(torch / "_inductor/__init__.py", "")),
        names={
            str(name): in_source(name, torch, words) for name in load_all_names() if name.module.startswith("torch")
        },
        public=frozenset(
            f"{module}.{name}"
            for file, source in text.items()
            for module in public_module(file, torch)
            for name in listed(source)
        ),
    )


def public_module(file: Path, torch: Path) -> list[str]:
    """The name of a module, if every part of it is public."""
    parts = ["torch", *file.relative_to(torch).with_suffix("").parts]
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return [] if any(part.startswith("_") for part in parts) else [".".join(parts)]


def listed(source: str) -> Iterator[str]:
    """The names in the lists that a module assigns or adds to `__all__`."""
    for node in ast.parse(source).body if "__all__" in source else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            elements = getattr(getattr(node, "value", None), "elts", ())
            yield from (str(element.value) for element in elements if isinstance(element, ast.Constant))


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


def in_source(name: PrivateName, torch: Path, words: Collection[str]) -> bool:
    """Whether the source contains the name: a quick look, which the probes of the installed release confirm.

    The names of the C++ part are looked for in all files: in its stubs, or where torch uses them.
    """
    if name.module.startswith("torch._C") and not name.text:
        return name.attribute in words
    path = torch.joinpath(*name.module.split(".")[1:])
    files = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
    if name.text and path.is_dir():  # a text of a package may be in any of its files
        files = list(path.rglob("*.py"))
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
    for what, names in (("new", new.public - old.public), ("removed", old.public - new.public)):
        yield f"\n{what} public names ({len(names)})"
        yield from (f"  {name}" for name in sorted(names))
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
