"""Settings, conditions, hazards and evidence: validation and lookup."""

import pytest
from tests.support import make_env

from rocsolid.model.evidence import Rank, claim, issue, source
from rocsolid.model.finding import Rule, Severity, worst_first
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Hazard, Owner, Recommendation, Setting, on, same

SOURCE = source("x", "y")


def test_refuses_a_value_of_the_wrong_type() -> None:
    advice = Recommendation(profile="safe", value="no", why="w", evidence=(SOURCE,))

    with pytest.raises(TypeError, match=r"inductor\.x: 'no' is not of type bool"):
        Setting(owner=Owner.INDUCTOR, name="x", value_type=bool, summary="s", recommendations=(advice,))


def test_refuses_a_recommendation_backed_only_by_a_claim() -> None:
    advice = Recommendation(profile="safe", value=False, why="w", evidence=(claim("a guide", "so"),))

    with pytest.raises(ValueError, match="a recommendation needs evidence stronger than a claim"):
        Setting(owner=Owner.INDUCTOR, name="x", value_type=bool, summary="s", recommendations=(advice,))


def test_a_finding_backed_only_by_a_claim_is_info() -> None:
    rule = Rule(code="XXX001", name="x", severity=Severity.CRITICAL, message="", why="", fix="", check="", since="0")

    assert rule.found("s", evidence=(claim("a", "b"),)).severity is Severity.INFO
    assert rule.found("s", evidence=(claim("a", "b"), issue("a/b#1", "c"))).severity is Severity.CRITICAL


def test_a_finding_without_a_value_for_its_message_raises() -> None:
    rule = Rule(code="XXX001", name="x", severity=Severity.INFO, message="{value}", why="", fix="", check="", since="0")

    with pytest.raises(KeyError, match="value"):
        rule.found("s")


def test_true_is_not_one() -> None:
    assert same(True, True)
    assert not same(True, 1)


def test_conditions_hold_by_platform_release_and_chip() -> None:
    env = make_env(Platform.ROCM, rocm="7.2", arch="gfx942")

    assert on(Platform.ROCM, rocm="7.2.0..7.2.3", archs=("gfx94",)).holds(env)
    assert not on(Platform.CUDA).holds(env)
    assert not on(Platform.ROCM, archs=("gfx11",)).holds(env)
    assert not on(torch="..2.9").holds(env)
    assert str(on(Platform.ROCM, rocm="7.2.0..7.2.3")) == "ROCm 7.2.0 to 7.2.3"
    assert str(on()) == "all platforms"


def test_the_first_hazard_that_applies_wins() -> None:
    hazards = (
        Hazard(value=True, severity=Severity.CRITICAL, why="a", evidence=(SOURCE,), when=on(Platform.ROCM)),
        Hazard(value=True, severity=Severity.WARNING, why="b", evidence=(SOURCE,)),
    )
    setting = Setting(owner=Owner.INDUCTOR, name="x", value_type=bool, summary="s", hazards=hazards)

    found = [setting.hazard(True, make_env(p)) for p in (Platform.ROCM, Platform.CUDA)]

    assert [h.severity for h in found if h] == [Severity.CRITICAL, Severity.WARNING]
    assert setting.hazard(False, make_env()) is None


def test_the_channel_follows_the_owner_unless_via_is_given() -> None:
    assert Setting(owner=Owner.DYNAMO, name="x", value_type=bool, summary="s").channel is Channel.SCOPE
    assert (
        Setting(owner=Owner.INDUCTOR, name="x", value_type=bool, summary="s", via=Channel.SCOPE).channel
        is Channel.SCOPE
    )


def test_findings_are_sorted_worst_first_and_causes_before_effects() -> None:
    rule = Rule(code="XXX001", name="x", severity=Severity.INFO, message="", why="", fix="", check="", since="0")
    effect = rule.found("a", severity=Severity.WARNING, evidence=(SOURCE,), cause="XXX001:b")
    cause = rule.found("b", severity=Severity.WARNING, evidence=(SOURCE,))
    worst = rule.found("c", severity=Severity.CRITICAL, evidence=(SOURCE,))

    assert [f.subject for f in worst_first([effect, cause, worst])] == ["c", "b", "a"]


def test_an_issue_has_a_url_and_ranks_are_ordered() -> None:
    assert issue("pytorch/pytorch#1", "x").url == "https://github.com/pytorch/pytorch/issues/1"
    assert Rank.MEASURED > Rank.SOURCE > Rank.ISSUE > Rank.CLAIM
