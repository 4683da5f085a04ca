"""The commands `rocsolid compiles` and `rocsolid breaks`: output formats, exit codes, error messages."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import Ran, chromium, run_cli

from rocsolid.cli.app import run

if TYPE_CHECKING:
    from playwright.sync_api import Page

WORK = """\
import time

import torch
import torch._dynamo


def scaled(x):
    y = torch.relu(x) * 2
    return y / y.max().item()


def talking():
    print("made")

    def f(x):
        print("called")
        return x + 1

    return f, (torch.ones(2),), {}


def build():
    return scaled, (torch.ones(3, 4),), {}


def whole():
    return torch.nn.ReLU(), (torch.ones(3, 4),), {}


def failing():
    def f(x):
        raise KeyError("no such layer")

    return f, (torch.ones(2),), {}


def stuck():
    def backend(graph, inputs):
        time.sleep(60)

    return torch.compile(scaled, backend=backend), (torch.ones(3, 4),), {}
"""


class Command:
    """Runs the command line in this process, because importing torch's compiler for each call would take most of the time."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> Ran:
        self._capsys.readouterr()
        code = run(list(args))
        printed = self._capsys.readouterr()
        return Ran(code=code, out=printed.out, err=printed.err)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    monkeypatch.setenv("COLUMNS", "100")
    yield Command(capsys)
    if "torch" in sys.modules:
        sys.modules["torch"]._dynamo.reset()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("work") / "work.py"
    file.write_text(WORK)
    return file


@pytest.fixture(scope="module")
def saved(work: Path) -> Path:
    """A compile log that the command wrote."""
    file = work.with_name("log.json")
    assert run(["compiles", f"{work}:build", "--output", "json", "--code", "--out", str(file)]) == 0
    return file


@pytest.mark.torch
def test_compiles_writes_text_json_and_html(command: Command, work: Path, saved: Path) -> None:
    data = json.loads(saved.read_text())

    assert data["schema"] == "rocsolid/compiles/1"
    assert data["workload"] == f"{work}:build"
    assert [g["function"] for g in data["graphs"]] == ["scaled", "scaled (resumed at line 9)"]
    assert data["breaks"][0]["id"] == "GB0124"
    assert any("kernel(" in k["code"] for k in data["graphs"][0]["kernels"])
    text = command("report", str(saved))
    assert text.out.startswith("2 compiled graphs · ")
    assert "kernel(" not in text.out
    assert "kernel(" in command("report", str(saved), "-v").out
    page = command("report", str(saved), "--output", "html")
    assert page.out.startswith("<!doctype html>")
    github = command("report", str(saved), "--output", "github")
    assert f"file={work},line=9" in github.out


@pytest.mark.torch
def test_breaks_sets_the_exit_code_for_ci(command: Command, work: Path) -> None:
    ran = command("breaks", f"{work}:build", "--quick", "--fail-on", "warning")

    assert ran.code == 1, ran.err
    assert ran.out.startswith("graph break: ")
    assert f"  {work}:9   return y / y.max().item()\n" in ran.out
    assert "^" * len("y.max().item()") in ran.out
    assert "scaled: 1 graph break, 2 compiled graphs" in ran.out
    assert "GB0124" in ran.out
    assert "checked: this break is gone" in ran.out
    assert "\n  + return y / y.max()\n" in ran.out
    clean = command("breaks", f"{work}:whole", "--quick", "--fail-on", "warning")
    assert (clean.code, clean.out.splitlines()[0].startswith("ReLU: no graph break, 1 compiled graph")) == (0, True)


@pytest.mark.torch
def test_breaks_writes_every_format(command: Command, work: Path, tmp_path: Path) -> None:
    saved = tmp_path / "breaks.json"
    assert command("breaks", f"{work}:build", "--quick", "--output", "json", "--out", str(saved)).code == 0

    assert json.loads(saved.read_text())["schema"] == "rocsolid/breaks/1"
    sarif = command("report", str(saved), "--output", "sarif").json()
    result = sarif["runs"][0]["results"][0]
    assert result["ruleId"] == "BRK001"
    assert "scaled: 1 graph break, 2 compiled graphs" in command("report", str(saved)).out
    assert "Graph breaks: scaled" in command("report", str(saved), "--output", "html").out


@pytest.mark.torch
def test_a_deadline_ends_a_hanging_compile_and_reports_its_phase(work: Path) -> None:
    ran = run_cli("compiles", f"{work}:stuck", "--deadline", "4", timeout=60)

    assert ran.code == 124
    assert "the deadline of 4 s was exceeded; current step: graph 1, scaled, " in ran.err
    assert "calling the backend" in ran.err
    assert "time.sleep(60)" in ran.err
    assert "stack of the main thread, innermost call last (-v prints all threads)" in ran.err
    assert "thread MainThread:" not in ran.err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["compiles"], 2, "give exactly one of WORKLOAD, --torch-trace DIR and --torch-debug DIR"),
        (["compiles", "x.py:f", "--torch-trace", "y"], 2, "give exactly one of"),
        (["compiles", "x.py:f", "--calls", "0"], 2, "argument --calls: must be a whole number of at least 1, not '0'"),
        (["breaks", "x.py"], 2, "write a workload as file.py:function"),
        (["breaks", "nothing.py:f"], 2, "the workload file nothing.py does not exist"),
    ],
)
def test_wrong_usage_prints_one_line(command: Command, args: list[str], code: int, message: str) -> None:
    ran = command(*args)

    assert (ran.code, ran.err.count("\n")) == (code, 1)
    assert message in ran.err


@pytest.mark.torch
def test_an_error_of_the_workload_prints_one_line(command: Command, work: Path) -> None:
    ran = command("breaks", f"{work}:failing", "--quick")

    assert (ran.code, "Traceback" in ran.err) == (3, False)
    assert "failed: KeyError: 'no such layer'" in ran.err
    missing = command("compiles", f"{work}:whole", "--backward", "--calls", "1")
    assert missing.code == 2
    assert "no tensor in the workload's result has requires_grad=True" in missing.err


@pytest.mark.torch
def test_prints_of_the_workload_go_to_stderr(command: Command, work: Path) -> None:
    ran = command("breaks", f"{work}:talking", "--quick", "--output", "json")

    assert ran.json()["function"] == "f"
    assert "made\n" in ran.err
    assert "called\n" in ran.err


@pytest.fixture(scope="module")
def page(saved: Path) -> Iterator["Page"]:
    from playwright.sync_api import sync_playwright

    file = saved.with_suffix(".html")
    assert run(["report", str(saved), "--output", "html", "--out", str(file)]) == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1100, "height": 900})
        problems: list[str] = []
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.on(
            "request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None
        )
        opened.goto(file.as_uri())
        yield opened
        assert problems == []
        browser.close()


@pytest.mark.torch
@pytest.mark.browser
def test_the_page_has_a_timeline_and_graphs_that_open(page: "Page") -> None:
    assert page.locator("#timeline .lane").count() == 2
    assert page.locator("#timeline rect").count() > 10
    box = page.locator("#timeline rect").first.bounding_box()
    assert box is not None
    assert box["width"] > 20
    page.locator("#graph-1 > summary").click()
    assert page.locator("#graph-1 svg.flame").is_visible()
    page.locator("#graph-1 .kernel summary").first.click()
    assert "kernel(" in page.locator("#graph-1 .kernel pre").first.inner_text()
    assert page.locator(".minus").first.is_visible()
