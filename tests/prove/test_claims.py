"""Every statement about ROCm has an id, most have a check, and the stored records refute none."""

import json
from collections import Counter

from tests.support import ROOT

from rocsolid.catalog.capture_rules import CAPTURE_RULES
from rocsolid.catalog.claims import concerns_rocm, problem_check, rocm_claims
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.registry import all_settings
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS
from rocsolid.model.proof import ClaimKind
from rocsolid.prove.check import all_claims, find_check, load_checks
from rocsolid.prove.record import stored_proofs
from rocsolid.report.proof_page import claims_page, refuted_claims

GUIDES = json.loads((ROOT / "docs/data/guides.json").read_text())


def test_every_statement_about_rocm_has_an_id() -> None:
    ids = {claim.id for claim in all_claims()}

    assert {f"setting:{s.id}" for s in all_settings() if concerns_rocm(s.valid)} <= ids
    assert {f"problem:{p.id}" for p in all_problems() if concerns_rocm(p.when)} <= ids
    assert {f"capture-rule:{rule.id}" for rule in CAPTURE_RULES} <= ids
    assert {f"error:{error.number}" for error in RUNTIME_ERRORS} <= ids
    assert sum(claim.kind is ClaimKind.GUIDE for claim in all_claims()) == len(GUIDES) == 136
    hazards = [(s.id, h.why) for s in all_settings() for h in s.hazards if concerns_rocm(h.when)]
    stated = {(c.refs[0], c.statement.split(": ", 1)[1]) for c in all_claims() if "/harmful:" in c.id and c.refs}
    cited = {c.statement.split(": ", 1)[1] for c in all_claims() if "/harmful:" in c.id}
    assert {why for _, why in hazards if why not in cited} <= {
        # the general hazard of a value is never used on ROCm if a special one for ROCm comes first
        h.why
        for s in all_settings()
        for i, h in enumerate(s.hazards)
        if not h.when.platforms and i
    }
    assert stated


def test_at_least_four_of_five_claims_have_a_check() -> None:
    claims = all_claims()
    checked = [claim for claim in claims if claim.check]

    assert len(checked) >= 0.8 * len(claims)
    assert all(bool(claim.check) != bool(claim.undecidable) for claim in claims)
    for kind, total in Counter(claim.kind for claim in claims).items():
        assert sum(claim.kind is kind for claim in checked) >= 0.8 * total, kind


def test_every_check_exists_and_is_used() -> None:
    used = {find_check(claim.check).name for claim in all_claims() if claim.check}

    assert used == set(load_checks())
    for problem in all_problems():
        assert not (problem.check and problem.undecidable), problem.id
        if concerns_rocm(problem.when) and problem_check(problem).startswith("problem:"):
            assert problem_check(problem) in load_checks()


def test_a_changed_statement_has_another_digest() -> None:
    changed = [{**GUIDES[0], "fact": "Something else."}, *GUIDES[1:]]
    before, after = ({claim.id: claim.digest for claim in rocm_claims(guides)} for guides in (GUIDES, changed))

    assert before.keys() == after.keys()
    assert sum(before[name] != after[name] for name in before) == 1


def test_without_a_checkout_the_claims_of_the_guides_are_missing() -> None:
    assert not [claim for claim in rocm_claims() if claim.kind is ClaimKind.GUIDE]


def test_no_stored_record_refutes_a_claim() -> None:
    """Correct the statement in the catalogue, or the check, if this fails."""
    assert refuted_claims(all_claims(), stored_proofs(ROOT / "evidence")) == []


def test_page_counts_the_claims() -> None:
    page = claims_page(all_claims(), {}, {})

    assert f"rocsolid makes {len(all_claims())} statements" in page
    assert all(f"`{claim.id}`" in page for claim in all_claims())
    assert page.count("no machine decides it: ") == sum(not claim.check for claim in all_claims())


def test_the_statement_of_a_capture_rule_says_what_happens_in_which_mode() -> None:
    statement = {claim.id: claim.statement for claim in all_claims()}["capture-rule:malloc"]
    assert (
        "HIP 7.2.4: fails, and the capture fails (900) in global and thread_local mode, runs immediately" in statement
    )
    assert "in relaxed mode" in statement
