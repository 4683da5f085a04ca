"""How often the lint is right: a hundred findings on public code, judged by hand, one by one."""

import json
from pathlib import Path

from rocsolid.rules.engine import source_rules

JUDGED = json.loads(Path(__file__).with_name("judged.json").read_text(encoding="utf-8"))


def test_nine_in_ten_findings_were_right() -> None:
    found = JUDGED["findings"]

    assert len(found) == 100
    assert sum(row["verdict"] == "right" for row in found) >= 90


def test_every_verdict_has_its_place_and_its_reason() -> None:
    codes = {file.rule.code: file.rule.name for file in source_rules()}
    places = set()
    for row in JUDGED["findings"]:
        assert row["verdict"] in ("right", "wrong")
        assert len(row["why"]) > 20, row
        assert row["project"] in JUDGED["code"]
        assert row["file"].endswith(".py")
        assert row["line"] > 0
        assert codes[row["code"]] == row["rule"]
        assert row["confidence"] in ("inside", "reachable")
        places.add((row["project"], row["file"], row["line"], row["code"]))

    assert len(places) == 100
