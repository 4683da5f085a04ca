"""Every source rule reports its bad file as expected, and reports nothing in its good file or in those of other rules.

Each rule has a folder with its name: `bad.py`, `good.py`, and `expected.txt`, which ROCSOLID_UPDATE=1 writes.
"""

import os
import re
from pathlib import Path

import pytest
from tests.support import ROOT

from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.model.finding import Finding
from rocsolid.rules.engine import RuleFile, source_rules

CASES = Path(__file__).with_name("cases")
UNFILLED = re.compile(r"\{\w+[^}\"]*\}")  # `{subject!r}`, but not `{"freezing": True}`
RULES = source_rules()
PAGE_BLOCK = re.compile(r"^## (Example|Use instead)\n(.*?)(?=^## )", re.DOTALL | re.MULTILINE)


def found_in(*paths: Path, confidence: str = "anywhere") -> list[Finding]:
    """Findings of all rules, also of those that are off by default."""
    return list(lint(paths, Options(confidence=confidence, select=("SRC",)), jobs=1, cache=None).findings)


def line_of(finding: Finding) -> str:
    line = finding.location.rpartition(":")[2]
    return f"{line}: {finding.severity.name} {finding.code} [{finding.facts['confidence']}] {finding.message}"


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_rule_reports_its_bad_file(file: RuleFile, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CASES / file.rule.name
    monkeypatch.chdir(folder)
    found = found_in(Path("bad.py"))
    text = "".join(f"{line_of(f)}\n" for f in found)
    if os.environ.get("ROCSOLID_UPDATE"):
        (folder / "expected.txt").write_text(text, encoding="utf-8")

    assert file.rule.code in {f.code for f in found}
    assert text == (folder / "expected.txt").read_text(encoding="utf-8")
    for finding in found:
        assert not UNFILLED.search(finding.message + finding.why + finding.fix + finding.check)
        assert finding.fix
        assert len(finding.message) <= 100


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_rule_reports_nothing_in_its_good_file(file: RuleFile) -> None:
    found = [f for f in found_in(CASES / file.rule.name / "good.py") if f.code == file.rule.code]

    assert [line_of(f) for f in found if is_counted(f, file)] == []


def is_counted(finding: Finding, file: RuleFile) -> bool:
    """Hazards of compiled or captured code do not count in other code; they are shown only with --confidence anywhere."""
    return "region" not in file.rule.name or finding.facts["confidence"] != "anywhere"


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_other_rules_report_nothing_in_a_good_file(file: RuleFile) -> None:
    found = found_in(CASES / file.rule.name / "good.py", confidence="reachable")

    assert [line_of(f) for f in found] == []


@pytest.mark.parametrize("file", [f for f in RULES if f.check_source], ids=lambda file: file.rule.name)
def test_page_examples_match_the_rule(file: RuleFile, tmp_path: Path) -> None:
    """The rule reports the code under Example, and does not report the code under Use instead."""
    blocks = {title: _dedented(text) for title, text in PAGE_BLOCK.findall(file.page)}
    (tmp_path / "example.py").write_text(blocks["Example"], encoding="utf-8")
    (tmp_path / "instead.py").write_text(blocks["Use instead"], encoding="utf-8")

    assert file.rule.code in {f.code for f in found_in(tmp_path / "example.py")}
    assert file.rule.code not in {f.code for f in found_in(tmp_path / "instead.py") if is_counted(f, file)}


def _dedented(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines()) + "\n"


def test_every_source_rule_has_a_case_folder() -> None:
    names = {file.rule.name for file in RULES}

    assert {folder.name for folder in CASES.iterdir()} == names
    assert len([f for f in RULES if f.check_source]) >= 30


def test_rule_files_have_the_name_of_their_rule() -> None:
    """So that the name in a finding leads to the source of its rule."""
    for file in RULES:
        name = file.rule.name.replace("-", "_")
        assert list((ROOT / "src/rocsolid/rules/source").glob(f"*/{name}.py")), name


@pytest.mark.parametrize(
    ("file", "text", "marked"),
    [
        ("m.py", 'import torch\nmodel = torch.compile(model, mode="max-autotune")', '"max-autotune"'),
        ("m.py", 'import torch\nif x:\n    é = "é"; torch.compile(m, mode="max-autotune")', '"max-autotune"'),
        (
            "m.py",
            "import torch\ntorch._inductor.config.group_fusion = (\n    True\n)",
            "torch._inductor.config.group_fusion = (",
        ),
        ("run.sh", "export A=1 INDUCTOR_COORD_DESCENT=1", "INDUCTOR_COORD_DESCENT"),
    ],
)
def test_columns_mark_the_expression_in_its_line(tmp_path: Path, file: str, text: str, marked: str) -> None:
    (tmp_path / file).write_text(f"{text}\n", encoding="utf-8")
    (finding,) = found_in(tmp_path / file)
    code = finding.facts["code_line"]
    assert isinstance(code, dict)
    assert code["text"][code["start"] : code["end"]] == marked
