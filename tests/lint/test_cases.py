"""Every source rule: its bad file has the expected findings, its good file has none of any rule.

A case is a folder named after its rule: `bad.py`, `good.py`, and `expected.txt`, which ROCSOLID_UPDATE=1 writes.
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
RULES = source_rules()
# A page may show code with findings of other rules; a good file may not.
PAGE_BLOCK = re.compile(r"^## (Example|Use instead)\n(.*?)(?=^## )", re.DOTALL | re.MULTILINE)


def found_in(*paths: Path, confidence: str = "anywhere") -> list[Finding]:
    return list(lint(paths, Options(confidence=confidence), jobs=1, cache=None).findings)


def line_of(finding: Finding) -> str:
    place = finding.place.rpartition(":")[2]
    return f"{place}: {finding.severity.name} {finding.code} [{finding.facts['confidence']}] {finding.message}"


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_a_bad_file_has_the_expected_findings(file: RuleFile, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CASES / file.rule.name
    monkeypatch.chdir(folder)
    found = found_in(Path("bad.py"))
    text = "".join(f"{line_of(f)}\n" for f in found)
    if os.environ.get("ROCSOLID_UPDATE"):
        (folder / "expected.txt").write_text(text, encoding="utf-8")

    assert file.rule.code in {f.code for f in found}
    assert text == (folder / "expected.txt").read_text(encoding="utf-8")
    for finding in found:
        assert "{" not in finding.message + finding.why + finding.check
        assert finding.fix


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_a_good_file_has_no_finding_of_its_rule(file: RuleFile) -> None:
    found = [f for f in found_in(CASES / file.rule.name / "good.py") if f.code == file.rule.code]

    assert [line_of(f) for f in found if counts(f, file)] == []


def counts(finding: Finding, file: RuleFile) -> bool:
    """Rules about a region do not apply outside of one; such findings have the confidence `anywhere`."""
    return "region" not in file.rule.name or finding.facts["confidence"] != "anywhere"


# Good files of one rule that have a finding of another.
ALLOWED_OTHERS: set[tuple[str, str]] = set()


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_a_good_file_has_no_finding_of_other_rules(file: RuleFile) -> None:
    found = found_in(CASES / file.rule.name / "good.py", confidence="reachable")

    assert [line_of(f) for f in found if (file.rule.name, f.code) not in ALLOWED_OTHERS] == []


@pytest.mark.parametrize("file", [f for f in RULES if f.inspect], ids=lambda file: file.rule.name)
def test_the_examples_on_a_rules_page_are_correct(file: RuleFile, tmp_path: Path) -> None:
    """The section "Example" has a finding of the rule; the section "Use instead" has none."""
    blocks = {title: _code(text) for title, text in PAGE_BLOCK.findall(file.page)}
    (tmp_path / "example.py").write_text(blocks["Example"], encoding="utf-8")
    (tmp_path / "instead.py").write_text(blocks["Use instead"], encoding="utf-8")

    assert file.rule.code in {f.code for f in found_in(tmp_path / "example.py")}
    assert file.rule.code not in {f.code for f in found_in(tmp_path / "instead.py") if counts(f, file)}


def _code(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines()) + "\n"


def test_every_rule_has_a_case() -> None:
    names = {file.rule.name for file in RULES}

    assert {folder.name for folder in CASES.iterdir()} == names
    assert len([f for f in RULES if f.inspect]) >= 30


def test_rule_files_are_named_after_the_rule() -> None:
    """So that a finding's name leads to its source file."""
    for file in RULES:
        name = file.rule.name.replace("-", "_")
        assert list((ROOT / "src/rocsolid/rules/source").glob(f"*/{name}.py")), name
