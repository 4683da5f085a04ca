"""Every rule over source: it trips on its bad file as expected, and stays silent on its good one and on everyone else's.

A case is a folder of its rule's name: `bad.py`, `good.py`, and `expected.txt`, which ROCSOLID_UPDATE=1 writes.
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
# A page may show what another rule has a word to say about; a good file may not.
PAGE_BLOCK = re.compile(r"^## (Example|Use instead)\n(.*?)(?=^## )", re.DOTALL | re.MULTILINE)


def found_in(*paths: Path, confidence: str = "anywhere") -> list[Finding]:
    return list(lint(paths, Options(confidence=confidence), jobs=1, cache=None).findings)


def line_of(finding: Finding) -> str:
    place = finding.location.rpartition(":")[2]
    return f"{place}: {finding.severity.name} {finding.code} [{finding.facts['confidence']}] {finding.message}"


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_a_rule_trips_on_its_bad_file_as_expected(file: RuleFile, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_a_good_file_is_silent_for_its_own_rule(file: RuleFile) -> None:
    found = [f for f in found_in(CASES / file.rule.name / "good.py") if f.code == file.rule.code]

    assert [line_of(f) for f in found if counts(f, file)] == []


def counts(finding: Finding, file: RuleFile) -> bool:
    """What hurts in a region only is no hazard outside of one, and is shown to who asks for everything."""
    return "region" not in file.rule.name or finding.facts["confidence"] != "anywhere"


# A near miss of one rule that is another's business, for all to see.
OTHERS_BUSINESS: set[tuple[str, str]] = set()


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.rule.name)
def test_a_good_file_is_silent_for_every_other_rule(file: RuleFile) -> None:
    found = found_in(CASES / file.rule.name / "good.py", confidence="reachable")

    assert [line_of(f) for f in found if (file.rule.name, f.code) not in OTHERS_BUSINESS] == []


@pytest.mark.parametrize("file", [f for f in RULES if f.check_source], ids=lambda file: file.rule.name)
def test_the_examples_of_a_page_are_true(file: RuleFile, tmp_path: Path) -> None:
    """What the page calls an example trips the rule; what it says to use instead does not."""
    blocks = {title: _code(text) for title, text in PAGE_BLOCK.findall(file.page)}
    (tmp_path / "example.py").write_text(blocks["Example"], encoding="utf-8")
    (tmp_path / "instead.py").write_text(blocks["Use instead"], encoding="utf-8")

    assert file.rule.code in {f.code for f in found_in(tmp_path / "example.py")}
    assert file.rule.code not in {f.code for f in found_in(tmp_path / "instead.py") if counts(f, file)}


def _code(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines()) + "\n"


def test_every_case_belongs_to_a_rule_and_every_rule_has_one() -> None:
    names = {file.rule.name for file in RULES}

    assert {folder.name for folder in CASES.iterdir()} == names
    assert len([f for f in RULES if f.check_source]) >= 30


def test_rules_have_their_files_named_after_them() -> None:
    """The file is the hazard's name, so that a finding leads to its source."""
    for file in RULES:
        name = file.rule.name.replace("-", "_")
        assert list((ROOT / "src/rocsolid/rules/source").glob(f"*/{name}.py")), name
