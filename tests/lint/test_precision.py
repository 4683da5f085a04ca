"""Precision of the linter on public code: findings that were judged one by one (`scripts/score_lint.py`)."""

import json

from tests.support import ROOT

from rocsolid.rules.engine import source_rules

JUDGED = json.loads((ROOT / "evidence/lint-verdicts.json").read_text(encoding="utf-8"))
PRECISION = json.loads((ROOT / "evidence/lint-precision.json").read_text(encoding="utf-8"))
FIXES = json.loads((ROOT / "evidence/lint-fixes.json").read_text(encoding="utf-8"))
ENOUGH = 10  # judged findings, to say something about a rule


def test_findings_that_are_reported_by_default_are_right_and_useful() -> None:
    default = PRECISION["default"]

    assert default["true"] >= 0.85 * default["judged"]
    assert default["useful"] >= 0.6 * default["judged"]
    assert default["judged"] >= 0.9 * PRECISION["default_findings"]
    assert PRECISION["lines_per_default_finding"] >= 2000


def test_no_critical_finding_is_wrong() -> None:
    critical = PRECISION["default_critical"]

    assert critical["true"] == critical["judged"]


def test_rules_that_are_often_wrong_are_off_by_default() -> None:
    wrong = [
        code
        for code, row in PRECISION["rules"].items()
        if row["judged"] >= ENOUGH and row["true"] < 0.8 * row["judged"]
    ]

    assert [f.rule.code for f in source_rules() if f.rule.on_by_default and f.rule.code in wrong] == []
    for file in source_rules():
        if file.rule.code in PRECISION["rules"]:
            assert PRECISION["rules"][file.rule.code]["on_by_default"] == file.rule.on_by_default, file.rule.code


def test_every_verdict_has_a_place_and_a_reason() -> None:
    codes = {file.rule.code for file in source_rules()}
    places = {(v["repository"], v["file"], v["line"], v["code"]) for v in JUDGED["verdicts"]}

    assert len(places) == len(JUDGED["verdicts"]) >= 300
    assert len(JUDGED["repositories"]) >= 12
    assert {v["repository"] for v in JUDGED["verdicts"]} <= set(JUDGED["repositories"])
    for verdict in JUDGED["verdicts"]:
        assert verdict["code"] in codes
        assert verdict["line"] > 0
        assert len(verdict["reason"]) > 10, verdict
        assert verdict["true"] or not verdict["useful"], verdict  # what is wrong is not worth reporting


def test_every_fix_names_its_commit_and_cause() -> None:
    assert len({fix["commit"] for fix in FIXES["fixes"]}) == len(FIXES["fixes"]) >= 60
    for fix in FIXES["fixes"]:
        assert fix["repository"] in JUDGED["repositories"]
        assert fix["files"]
        assert fix["cause"]
