"""Each tutorial is run as a reader would run it, and prints what its page shows."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import tutorials
from tests.support import ROOT

TRIES = 3  # a speed-up can be missed while other programs use the cores


@pytest.mark.torch
@pytest.mark.parametrize("page", tutorials.pages(), ids=lambda page: page.stem)
def test_tutorial_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    for attempt in range(TRIES):
        steps = tutorials.run(page, tmp_path / str(attempt))
        assert steps
        wrong = [wrong for step in steps for wrong in tutorials.problems(step)]
        if not wrong:
            break
    assert wrong == []


def test_tutorials_are_in_the_navigation() -> None:
    assert [page.stem for page in tutorials.pages()] == [
        "checks-in-ci",
        "compile-hangs-in-a-container",
        "speed-up-a-policy",
        "two-traces",
    ]
    assert all(f"tutorial/{page.name}" in (ROOT / "mkdocs.yml").read_text() for page in tutorials.pages())


def test_output_is_stale_when_words_change_but_not_when_numbers_do() -> None:
    shown = "kernel  mm   12.5 µs  40 %\nidle 3.1 ms because the host is slow\n"

    assert tutorials.similarity(shown, shown.replace("12.5 µs", "9 ms").replace("40", "41.25")) == 1
    assert tutorials.similarity(shown, "error: nothing could be read\n") < tutorials.MIN_SIMILARITY


def test_site_shows_the_output_of_its_build(tmp_path: Path) -> None:
    shown = f"{tutorials.MARK}\n# A page\n\n```console\n$ echo $((6 * 7))\n```\n\n```text\n0\n```\n"
    (tmp_path / "page.md").write_text(shown)
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(tmp_path / "page.md"), src_uri="page.md"))
    built = tutorials.on_page_markdown(shown, page)

    assert built == shown.replace("\n0\n", "\n42\n")
    assert tutorials.on_page_markdown("# Another\n", page) == "# Another\n"
    contradicted = shown.replace("```console", "<!-- holds 43 -->\n```console")
    (tmp_path / "page.md").write_text(contradicted)
    assert tutorials.on_page_markdown(contradicted, page) == contradicted
