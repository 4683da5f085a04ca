"""The HTML page of lint findings in a real browser: it opens, filters, and explains each rule once."""

from pathlib import Path

import pytest
from tests.support import chromium

from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.model.codec import decode, loads
from rocsolid.model.lint import LintRecord
from rocsolid.report.lint_page import lint_html
from rocsolid.report.machine_readable import lint_json

TEXT = "import torch\nWARP_SIZE = 32\ndef g(x): return x.item()  # <b>\n@torch.compile\ndef f(x): return g(x)\n"


@pytest.fixture
def record(tmp_path: Path) -> LintRecord:
    (tmp_path / "m.py").write_text(TEXT)
    (tmp_path / "broken.py").write_text("from torch import compile, (:\n")
    return lint([tmp_path], Options(), jobs=1, cache=None)


def test_a_record_survives_json(record: LintRecord) -> None:
    assert decode(LintRecord, loads(lint_json(record), "it"), "it") == record


def test_a_page_without_findings() -> None:
    assert "No findings." in lint_html(LintRecord(findings=(), files=3, lines=9))


@pytest.mark.browser
def test_the_page_opens_and_filters(record: LintRecord, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    file = tmp_path / "lint.html"
    file.write_text(lint_html(record), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(file.as_uri())
        rows = page.locator("#findings tbody tr:visible")

        assert page.title() == "Lint findings"
        assert rows.count() == 2
        assert page.locator("details.finding").count() == 2
        assert "# <b>" in page.locator("#findings").inner_text()
        page.get_by_placeholder("filter").fill("warp")
        assert rows.count() == 1
        assert "broken.py" in page.locator("main").inner_text()
        assert problems == []
        browser.close()
