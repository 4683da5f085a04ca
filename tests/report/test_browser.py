"""The HTML report in a real browser: findings, filter, sorting, theme."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.report.test_reports import a_record
from tests.support import ROOT, chromium, clean_environ, run_cli

from rocsolid.report.probe_page import probe_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.torch]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of this machine with two changed settings."""
    file = tmp_path_factory.mktemp("report") / "probe.html"
    env = clean_environ(TORCHINDUCTOR_MAX_AUTOTUNE="1", TORCHINDUCTOR_FX_GRAPH_CACHE="0")
    known = ("--allow", "KNO001")  # known problems of CUDA and ROCm builds
    notes = ("--profile", "debug")  # differs from the defaults of every torch release
    assert run_cli("probe", *known, *notes, "--output", "html", "--out", str(file), env=env).code == 0
    return file


@pytest.fixture(scope="module")
def page(report: Path) -> Iterator["Page"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        opened = browser.new_page(viewport={"width": 1100, "height": 900})
        problems: list[str] = []
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.on(
            "request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None
        )
        opened.goto(report.as_uri())
        yield opened
        assert problems == []  # no script error, no network request
        browser.close()


def test_page_opens_with_its_findings(page: "Page") -> None:
    assert page.title() == "Probe report"
    assert page.locator("details.finding").count() >= 3
    assert page.locator(".counts b.warning").inner_text() == "2"
    assert page.locator("details.finding.is-warning").first.evaluate("e => e.open")
    assert not page.locator("details.finding.is-info").first.evaluate("e => e.open")


def test_checkbox_shows_changed_settings_or_all(page: "Page") -> None:
    rows = page.locator("#settings tbody tr:visible")

    assert rows.count() == 2
    page.get_by_label("only changed settings").uncheck()
    assert rows.count() > 500


def test_filter_and_sort(page: "Page") -> None:
    page.get_by_label("only changed settings").uncheck()
    page.get_by_label("filter settings").fill("cudagraph trees")
    names = page.locator("#settings tbody tr:visible td:first-child").all_inner_texts()
    assert "inductor.triton.cudagraph_trees" in names
    assert all("cudagraph" in name for name in names)

    page.get_by_role("button", name="setting", exact=True).click()
    up = page.locator("#settings tbody tr:visible td:first-child").all_inner_texts()
    page.get_by_role("button", name="setting", exact=True).press("Enter")
    down = page.locator("#settings tbody tr:visible td:first-child").all_inner_texts()
    assert up == list(reversed(down))
    page.get_by_label("filter settings").fill("")


def test_theme_button(page: "Page") -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    first = background()
    page.get_by_role("button", name="light / dark").click()
    assert background() != first
    page.get_by_role("button", name="light / dark").click()
    assert background() == first


def test_escapes_html_in_findings() -> None:
    from dataclasses import replace

    record = a_record()
    finding = replace(record.findings[0], message="<script>alert(1)</script>")
    html = probe_html(replace(record, findings=(finding,)))

    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_long_tables_of_the_docs_can_be_filtered(page: "Page") -> None:
    rows = "".join(f"<tr><td>setting {n}</td><td>{'abc'[n % 3]}</td></tr>" for n in range(20))
    script = (ROOT / "docs/assets/filter.js").read_text()
    browser = page.context.browser
    assert browser is not None
    docs = browser.new_page()
    docs.set_content(
        f'<div class="md-content"><table><tbody>{rows}</tbody></table>'
        f"<table><tbody><tr><td>short</td></tr></tbody></table></div><script>{script}</script>"
    )

    docs.fill(".row-filter", "Setting 1 c")

    assert docs.locator(".row-filter").count() == 1
    assert docs.locator("tr:visible").all_text_contents() == [f"setting {n}c" for n in (11, 14, 17)] + ["short"]
    docs.close()
