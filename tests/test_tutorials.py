"""Each tutorial is done as a reader would do it, and prints what its page shows."""

from pathlib import Path

import pytest
from tests.support import ROOT

import tutorials

TRIES = 3  # a page that speaks of a gain is wrong about it where other programs take the cores meanwhile


@pytest.mark.torch
@pytest.mark.parametrize("page", tutorials.pages(), ids=lambda page: page.stem)
def test_a_tutorial_does_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    for attempt in range(TRIES):
        steps = tutorials.run(page, tmp_path / str(attempt))
        assert steps
        wrong = [wrong for step in steps for wrong in tutorials.wrongs(step)]
        if not wrong:
            break
    assert wrong == []


def test_there_is_one_for_each_chair() -> None:
    assert [page.stem for page in tutorials.pages()] == [
        "checks-in-ci",
        "compile-hangs-in-a-container",
        "policy-at-twice-the-rate",
        "two-traces",
    ]
    assert all(f"tutorial/{page.name}" in (ROOT / "mkdocs.yml").read_text() for page in tutorials.pages())


def test_an_output_is_stale_when_its_words_change_and_not_when_its_figures_do() -> None:
    shown = "kernel  mm   12.5 µs  40 %\nidle 3.1 ms because the host is slow\n"

    assert tutorials.likeness(shown, shown.replace("12.5 µs", "9 ms").replace("40", "41.25")) == 1
    assert tutorials.likeness(shown, "error: nothing could be read\n") < tutorials.LEAST_ALIKE
