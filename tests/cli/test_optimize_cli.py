"""`rocsolid optimize`: text, JSON and HTML reports of a workload."""

import json
from pathlib import Path

import pytest
from tests.support import run_cli

pytestmark = pytest.mark.torch
WORKLOAD = """
import torch

def build():
    print("loading")
    return torch.sin, (torch.ones(4),), {}
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    (tmp_path / "work.py").write_text(WORKLOAD)
    return f"{tmp_path / 'work.py'}:build"


def test_a_budget_of_zero_chooses_eager_and_reports_skipped_forms(workload: str, tmp_path: Path) -> None:
    saved = tmp_path / "optimize.json"
    ran = run_cli("optimize", workload, "--budget", "0", "--output", "json", "--out", str(saved))
    assert ran.code == 0, ran.err
    document = json.loads(saved.read_text())
    assert document["schema"] == "rocsolid/optimize/1"
    assert document["chosen"] == "eager"
    assert [c["outcome"] for c in document["forms"]] == ["chosen", "skipped"]

    shown = run_cli("report", str(saved))
    assert "because the budget left no time for other forms" in shown.out
    assert "  compiled  skipped\n    no time was left in the budget\n" in shown.out
    page = run_cli("report", str(saved), "--output", "html")
    assert "<svg" in page.out
    assert "sin: forms" in page.out
    refused = run_cli("report", str(saved), "--output", "sarif")
    assert refused.code == 2
    assert "an optimize report has no output format 'sarif'; choose one of text, json, html" in refused.err


def test_wrong_workload_is_one_line(tmp_path: Path) -> None:
    ran = run_cli("optimize", str(tmp_path / "nothing.py:build"))
    assert ran.code == 2
    assert ran.err.startswith("rocsolid: error: the workload file")
    assert len(ran.err.splitlines()) == 1
