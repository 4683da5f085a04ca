"""ARCHITECTURE.md names existing paths, every package, and the layers of the import contract."""

import re

from tests.support import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PATHS = sorted(
    set(re.findall(r"`((?:src|docs|tests|scripts|\.ci)/[\w./-]+|benchmarks|evidence|examples|docs|scripts)`", TEXT))
)
LINKS = re.findall(r"\]\(([\w./-]+)\)", TEXT)


def test_every_path_exists() -> None:
    assert len(PATHS) > 60
    assert [path for path in (*PATHS, *LINKS) if not (ROOT / path).exists()] == []


def test_every_package_is_listed() -> None:
    packages = {init.parent.name for init in (ROOT / "src/rocsolid").glob("*/__init__.py")}
    named = {path.removeprefix("src/rocsolid/") for path in PATHS if path.startswith("src/rocsolid/")}

    assert packages <= named
    assert all(re.search(rf"\b{room}\b", TEXT.split("```")[1]) for room in packages)


def test_layers_match_the_import_contract() -> None:
    """Compare the list of layers with the contract that CI enforces."""
    contract = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert contract
    layers = [set(re.findall(r"rocsolid\.(\w+)", line)) for line in contract[1].strip().splitlines()]
    drawn = [
        set(re.findall(r"\b[a-z_]+\b", re.split(r" {3,}", line)[0])) for line in TEXT.split("```")[1].splitlines()[1:]
    ]

    assert drawn == layers
