"""Each tutorial is done as a reader would do it, and prints what its page shows."""

from pathlib import Path
from types import SimpleNamespace

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
        wrong = [wrong for step in steps for wrong in tutorials.problems(step)]
        if not wrong:
            break
    assert wrong == []


def test_there_is_one_for_each_chair() -> None:
    assert [page.stem for page in tutorials.pages()] == [
        "checks-in-ci",
        "compile-hangs-in-a-container",
        "speed-up-a-policy",
        "two-traces",
    ]
    assert all(f"tutorial/{page.name}" in (ROOT / "mkdocs.yml").read_text() for page in tutorials.pages())


def test_an_output_is_stale_when_its_words_change_and_not_when_its_figures_do() -> None:
    shown = "kernel  mm   12.5 µs  40 %\nidle 3.1 ms because the host is slow\n"

    assert tutorials.similarity(shown, shown.replace("12.5 µs", "9 ms").replace("40", "41.25")) == 1
    assert tutorials.similarity(shown, "error: nothing could be read\n") < tutorials.MIN_SIMILARITY


def test_the_site_shows_what_was_printed_when_it_was_built(tmp_path: Path) -> None:
    shown = f"{tutorials.MARK}\n# A page\n\n```console\n$ echo $((6 * 7))\n```\n\n```text\n0\n```\n"
    (tmp_path / "page.md").write_text(shown)
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(tmp_path / "page.md"), src_uri="page.md"))
    built = tutorials.on_page_markdown(shown, page)

    assert built == shown.replace("\n0\n", "\n42\n")
    assert tutorials.on_page_markdown("# Another\n", page) == "# Another\n"
    contradicted = shown.replace("```console", "<!-- holds 43 -->\n```console")
    (tmp_path / "page.md").write_text(contradicted)
    assert tutorials.on_page_markdown(contradicted, page) == contradicted
