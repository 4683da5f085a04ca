"""Reports of a study: JSON, text, and an HTML page in a real browser."""

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
from rocsolid.model.timing import SpeedComparison, Timing, Verdict
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
            name="baseline" if n == 1 else f"inductor.max_fusion_size={n}",
            choices={} if n == 1 else {"inductor.max_fusion_size": n},
            kind=MEASURED,
            timing=timing(2 + n / 10),
            phases={"import": 3.0, "compile": 5.0},
            relative_error=1e-4,
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
    gain = SpeedComparison(speedup=1.25, low=1.2, high=1.31, verdict=Verdict.FASTER, noise=0.012)
    same = SpeedComparison(speedup=0.99, low=0.97, high=1.01, verdict=Verdict.SAME, noise=0.012)
    return Study(
        workload="/models/gpt.py:build",
        profile="fast",
        search="tpe",
        machine={"device": "MI300X", "arch": "gfx942", "torch": "2.13.0", "python": "3.12.1"},
        knobs={"inductor.freezing": (False, True)},
        trials=(*measured, hung),
        finalists=(
            Finalist(name="baseline", timing=timing(2.1), rounds=24, processes=3),
            Finalist(
                name="inductor.freezing=True",
                timing=timing(1.7),
                against_baseline=gain,
                rounds=24,
                processes=3,
                break_even_calls=900,
            ),
            Finalist(name="graph=False", timing=timing(2.11), against_baseline=same, rounds=12, processes=2),
            Finalist(
                name="form=regional",
                failure="wrong result: wrong on input set 1: result: relative error 1.2e-01 against the reference, rounding explains 2.1e-07",
            ),
        ),
        effects=(
            Effect(id="inductor.freezing", value=True, speedup=1.24, pairs=3),
            Effect(id="form", value="eager", speedup=0.4, pairs=1),
        ),
        winner="inductor.freezing=True",
        verdict=Verdict.FASTER,
        reason="1.25 times as fast as the baseline [1.20, 1.31], and its results match eager",
        noise=0.012,
        best=resolve("fast", make_env()),
        elapsed_s=512.0,
        stop_reason="the budget for trials was used up",
    )


def test_study_survives_json() -> None:
    assert decode(Study, json.loads(a_study().json()), "study") == a_study()


def test_text_names_the_winner_and_the_rejected() -> None:
    text = study_text(a_study(), Terminal())

    assert text.startswith("FASTER: the best variant is inductor.freezing=True; 1.25 times as fast as the")
    assert "set-up pays off after 900 calls" in " ".join(text.split())
    assert "form=regional: failed, wrong result" in text
    assert "inductor.max_autotune=True: timed out, phase compile took longer than 120 s" in text
    assert "and 2 slower ones (show them with -v)" in text
    assert "max_fusion_size=12" in study_text(a_study(), Terminal(), verbose=True)


def test_large_page_is_small_and_escapes_markup() -> None:
    html = study_html(a_study(trials=300))

    assert len(html.encode()) < 500_000
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_trade_offs_are_shown_when_there_are_any() -> None:
    fast, small, neither = (
        replace(a_study().trials[n], setup_s=setup, peak_bytes=held << 20)
        for n, setup, held in ((0, 30.0, 900), (1, 2.0, 100), (2, 30.0, 950))
    )
    study = replace(a_study(), trials=(neither, small, fast))

    assert study.trade_offs == (fast, small)
    assert "<h2>Speed, set-up time and memory</h2>" in study_html(study)
    assert "Speed, set-up time and memory" not in study_html(replace(study, trials=(fast, neither)))


def test_page_shows_that_a_trial_was_measured_again() -> None:
    suspicious = replace(
        a_study().trials[1],
        second_timing=timing(0.5),
        reason="a first process measured 500 µs, but a second process did not confirm this",
    )

    assert "measured; a first process measured 500 µs" in study_html(replace(a_study(), trials=(suspicious,)))


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
def test_page_renders_in_a_browser(page: "Page") -> None:
    assert page.title() == "Tuned: gpt.py:build"
    assert page.locator(".counts b.good").inner_text() == "FASTER"
    assert page.locator("svg[role=img]").count() == 2
    assert page.locator("svg").first.locator("circle").count() == 2
    assert "[[decisions]]" in page.locator("#plan").inner_text()


@pytest.mark.browser
def test_trials_can_be_sorted_filtered_and_unfolded(page: "Page") -> None:
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


def test_page_of_a_study_with_one_finalist() -> None:
    alone = replace(a_study(), finalists=a_study().finalists[:1], effects=(), trials=a_study().trials[:1])

    assert "Only the baseline was measured" in study_html(alone)
    assert "Every variant could be measured" in study_html(alone)


def test_unsupported_output_form_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(a_study().json())
    ran = run_cli("report", str(tmp_path / "study.json"), "--output", "sarif")

    assert ran.code == 2
    assert "a study has no output format 'sarif'; choose one of text, json, html" in ran.err


def test_one_trial_is_not_called_trials() -> None:
    study = a_study()

    assert "(13 trials, " in str(study)
    assert "(1 trial, " in str(replace(study, trials=study.trials[:1]))
