"""The map is that of the house: what it names exists, and every room is on it."""

import re

from tests.support import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PATHS = sorted(
    set(re.findall(r"`((?:src|docs|tests|scripts|\.ci)/[\w./-]+|benchmarks|evidence|examples|docs|scripts)`", TEXT))
)
LINKS = re.findall(r"\]\(([\w./-]+)\)", TEXT)


def test_every_path_on_the_map_exists() -> None:
    assert len(PATHS) > 60
    assert [path for path in (*PATHS, *LINKS) if not (ROOT / path).exists()] == []


def test_every_room_is_on_the_map() -> None:
    rooms = {init.parent.name for init in (ROOT / "src/rocsolid").glob("*/__init__.py")}
    named = {path.removeprefix("src/rocsolid/") for path in PATHS if path.startswith("src/rocsolid/")}

    assert rooms <= named
    assert all(re.search(rf"\b{room}\b", TEXT.split("```")[1]) for room in rooms)


def test_the_order_of_layers_is_that_of_the_contract() -> None:
    """Holds the drawing against the contract that CI enforces."""
    contract = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert contract
    layers = [set(re.findall(r"rocsolid\.(\w+)", line)) for line in contract[1].strip().splitlines()]
    drawn = [
        set(re.findall(r"\b[a-z]+\b", re.split(r" {3,}", line)[0])) for line in TEXT.split("```")[1].splitlines()[1:]
    ]

    assert drawn == layers
