"""A study on paper: as JSON and back, as text, and as a page in a real browser."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import chromium, make_env, run_cli

from rocsolid.catalog.profiles import resolve
from rocsolid.model.codec import decode
from rocsolid.model.study import MEASURED, Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Comparison, Timing, Verdict
from rocsolid.report.study_page import study_html
from rocsolid.report.study_text import study_text
from rocsolid.report.terminal import Terminal

if TYPE_CHECKING:
    from playwright.sync_api import Page


def timing(ms: float) -> Timing:
    return Timing(median_ms=ms, low_ms=ms * 0.99, high_ms=ms * 1.01, samples=8)


def a_study(trials: int = 12) -> Study:
    measured = [
        TrialRecord(
            number=n,
            name="start" if n == 1 else f"inductor.max_fusion_size={n}",
            choices={} if n == 1 else {"inductor.max_fusion_size": n},
            kind=MEASURED,
            timing=timing(2 + n / 10),
            phases={"import": 3.0, "compile": 5.0},
            error=1e-4,
        )
        for n in range(1, trials + 1)
    ]
    hung = TrialRecord(
        number=trials + 1,
        name="inductor.max_autotune=True",
        choices={"inductor.max_autotune": True},
        kind="timed out",
        reason="phase compile took longer than 120 s",
        stacks="File <script>alert(1)</script> in select_algorithm",
        log_tail="AUTOTUNE mm(64x64)",
        seconds=121.0,
    )
    gain = Comparison(speedup=1.25, low=1.2, high=1.31, verdict=Verdict.FASTER, noise=0.012)
    same = Comparison(speedup=0.99, low=0.97, high=1.01, verdict=Verdict.SAME, noise=0.012)
    return Study(
        workload="/models/gpt.py:build",
        profile="fast",
        search="tpe",
        where={"device": "MI300X", "arch": "gfx942", "torch": "2.13.0", "python": "3.12.1"},
        knobs={"inductor.freezing": (False, True)},
        trials=(*measured, hung),
        finalists=(
            Finalist(name="start", timing=timing(2.1), rounds=24, processes=3),
            Finalist(name="inductor.freezing=True", timing=timing(1.7), against_start=gain, break_even_calls=900),
            Finalist(name="graph=False", timing=timing(2.11), against_start=same, rounds=12),
            Finalist(name="form=regional", out="wrong result: its answer to input 1 is off"),
        ),
        effects=(
            Effect(id="inductor.freezing", value=True, speedup=1.24, pairs=3),
            Effect(id="form", value="eager", speedup=0.4, pairs=1),
        ),
        winner="inductor.freezing=True",
        verdict=Verdict.FASTER,
        why="1.25 times as fast as the start [1.20, 1.31], and its answer was checked",
        noise=0.012,
        best=resolve("fast", make_env()),
        spent_s=512.0,
        ended="the budget for trials was spent",
    )


def test_a_study_survives_its_file() -> None:
    assert decode(Study, json.loads(a_study().json()), "study") == a_study()


def test_the_text_says_what_won_and_why_others_did_not() -> None:
    text = study_text(a_study(), Terminal())

    assert text.startswith("inductor.freezing=True: 1.25 times as fast as the start")
    assert "its set-up pays after 900 calls" in text
    assert "form=regional: out, wrong result" in text
    assert "inductor.max_autotune=True: timed out, phase compile took longer than 120 s" in text
    assert "and 2 slower ones; -v shows them" in text
    assert "max_fusion_size=12" in study_text(a_study(), Terminal(), verbose=True)


def test_a_page_of_many_trials_is_small_and_holds_no_markup_of_theirs() -> None:
    html = study_html(a_study(trials=300))

    assert len(html.encode()) < 500_000
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_what_speed_costs_is_shown_where_it_costs_something() -> None:
    fast, frugal, neither = (
        replace(a_study().trials[n], setup_s=setup, peak_bytes=held << 20)
        for n, setup, held in ((0, 30.0, 900), (1, 2.0, 100), (2, 30.0, 950))
    )
    study = replace(a_study(), trials=(neither, frugal, fast))

    assert study.trade_offs == (fast, frugal)
    assert "<h2>What speed costs</h2>" in study_html(study)
    assert "What speed costs" not in study_html(replace(study, trials=(fast, neither)))


def test_what_was_measured_again_is_said_in_its_row() -> None:
    doubted = replace(
        a_study().trials[1],
        again=timing(0.5),
        reason="a first process came to 500 µs, which a second one did not confirm",
    )

    assert "measured; a first process came to 500 µs" in study_html(replace(a_study(), trials=(doubted,)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Page"]:
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("study")
    (folder / "study.json").write_text(a_study().json())
    html = folder / "study.html"
    assert run_cli("report", str(folder / "study.json"), "--output", "html", "--out", str(html)).code == 0
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        opened = browser.new_page(viewport={"width": 1100, "height": 900})
        problems: list[str] = []
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.on("request", lambda r: problems.append(r.url) if not r.url.startswith("file:") else None)
        opened.goto(html.as_uri())
        yield opened
        assert problems == []
        browser.close()


@pytest.mark.browser
def test_the_page_in_a_browser(page: "Page") -> None:
    assert page.title() == "Tuned: gpt.py:build"
    assert page.locator(".counts b.good").inner_text() == "FASTER"
    assert page.locator("svg[role=img]").count() == 2
    assert page.locator("svg").first.locator("circle").count() == 2
    assert "[[decisions]]" in page.locator("#plan").inner_text()


@pytest.mark.browser
def test_trials_sort_filter_and_unfold(page: "Page") -> None:
    page.get_by_label("filter trials").fill("size=7")
    assert page.locator("#trials tbody tr:visible").count() == 1
    page.get_by_label("filter trials").fill("")
    page.locator("#trials").get_by_role("button", name="ms", exact=True).click()
    first = page.locator("#trials tbody tr:visible td:nth-child(3)").first.inner_text()
    page.locator("#trials").get_by_role("button", name="ms", exact=True).click()
    assert page.locator("#trials tbody tr:visible td:nth-child(3)").first.inner_text() != first

    fold = page.locator("details.finding").first
    fold.locator("summary").click()
    assert fold.get_by_text("stacks before the kill").is_visible()


def test_a_study_without_rivals_has_a_page() -> None:
    alone = replace(a_study(), finalists=a_study().finalists[:1], effects=(), trials=a_study().trials[:1])

    assert "The start had no rival" in study_html(alone)
    assert "Every variant could be measured" in study_html(alone)


def test_what_cannot_be_shown_so_is_said(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(a_study().json())
    ran = run_cli("report", str(tmp_path / "study.json"), "--output", "sarif")

    assert ran.code == 2
    assert "a study has no output format 'sarif'; choose one of text, json, html" in ran.err
