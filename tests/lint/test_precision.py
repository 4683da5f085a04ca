"""Precision of the linter: a hundred findings on public code, each reviewed by hand."""

import json
from pathlib import Path

from rocsolid.rules.engine import source_rules

REVIEWED = json.loads(Path(__file__).with_name("reviewed_findings.json").read_text(encoding="utf-8"))


def test_nine_of_ten_findings_are_correct() -> None:
    findings = REVIEWED["findings"]

    assert len(findings) == 100
    assert sum(row["verdict"] == "correct" for row in findings) >= 90


def test_every_reviewed_finding_has_a_location_and_a_reason() -> None:
    names = {file.rule.code: file.rule.name for file in source_rules()}
    locations = set()
    for row in REVIEWED["findings"]:
        assert row["verdict"] in ("correct", "false positive")
        assert len(row["why"]) > 20, row
        assert row["project"] in REVIEWED["code"]
        assert row["file"].endswith(".py")
        assert row["line"] > 0
        assert names[row["code"]] == row["rule"]
        assert row["confidence"] in ("inside", "reachable")
        locations.add((row["project"], row["file"], row["line"], row["code"]))

    assert len(locations) == 100
