"""The record hides names, notices every edit, and a simulated one walks through everything but is no evidence."""

import copy
import json
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, make_env, run_cli, run_python

from rocsolid.catalog.chips import chip
from rocsolid.errors import InputError
from rocsolid.model.platform import Platform
from rocsolid.model.proof import CheckRun, ClaimResult, ClaimVerdict, Prediction, ProofMachine, ProofRecord
from rocsolid.prove import facts
from rocsolid.prove.check import all_claims
from rocsolid.prove.record import make_record, objections
from rocsolid.prove.runtime import judge_rules
from rocsolid.report.proof_page import claims_page, proof_html, refuted_claims

MERGE = str(ROOT / "scripts/merge_evidence.py")
MI300X = ProofMachine(
    platform="rocm", host="0" * 16, system="Linux", chips=(chip("gfx942").product,), archs=("gfx942",), rocm="7.2.4",
    torch="2.13.0+rocm7.2", hip="7.2.53211", triton="3.7.1", python="3.12.3", container="docker rocm/pytorch",
)  # fmt: skip


def record(simulated: str = "", machine: ProofMachine = MI300X) -> ProofRecord:
    """A record with the answers of the real HIP 7.2.4 runtime, and with one claim refuted."""
    answers = json.loads((ROOT / "evidence/capture-rules-on-hip.json").read_text())["answers"]["hip-7.2"]
    env = make_env(Platform.ROCM, rocm_version="7.2.4")
    rules = [claim for claim in all_claims() if claim.check == "capture-rules"]
    prediction = Prediction(what="registers", predicted=24, seen=80, allowed=0.25)
    runs = [
        CheckRun(check="capture-rules", ended="ok", seconds=31.5, results=tuple(judge_rules(rules, answers, env))),
        CheckRun(
            check="dryrun",
            ended="ok",
            seconds=12.25,
            results=(
                ClaimResult(
                    claim="support:dryrun", verdict=ClaimVerdict.REFUTED, detail="too many", predictions=(prediction,)
                ),
            ),
            output="some <b>raw</b> output",
        ),
    ]
    return make_record(machine, all_claims(), runs, ["cost:copy"], simulated)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every single value of a document."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from places(value, (*path, index))
    else:
        yield path


def edited(data: dict[str, Any], path: tuple[Any, ...], draw: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    parent = changed
    for part in path[:-1]:
        parent = parent[part]
    value = parent[path[-1]]
    if isinstance(value, bool):
        parent[path[-1]] = not value
    elif isinstance(value, (int, float)):
        parent[path[-1]] = value + draw.choice((-1, 1, 0.5))
    else:
        words = [v.value for v in ClaimVerdict if v.value != value]
        parent[path[-1]] = draw.choice(words) if value in [v.value for v in ClaimVerdict] else f"{value}x"
    return changed


def reasons(data: dict[str, Any]) -> list[str]:
    try:
        return objections(json.dumps(data), "record.json", all_claims())[1]
    except InputError as error:
        return [str(error)]


def test_untouched_record_is_accepted() -> None:
    assert objections(record().json(), "record.json", all_claims())[1] == []


def test_a_hundred_edits_of_single_values_are_refused() -> None:
    data = json.loads(record().json())
    draw = random.Random(31)  # noqa: S311 - not for secrets
    every = list(places(data))
    chosen = [*draw.sample(every, 90), *(path for path in every if path[0] in ("seal", "schema", "machine", "code"))]

    assert len(chosen) >= 100
    for path in chosen:
        assert reasons(edited(data, path, draw)), path


def test_added_removed_and_doubled_parts_are_refused() -> None:
    data = json.loads(record().json())
    added = {**data, "note": "all is well"}
    inside = {**data, "machine": {**data["machine"], "cooling": "water"}}
    fewer = {**data, "checks": data["checks"][:1]}
    doubled = {**data, "checks": [*data["checks"], data["checks"][0]]}

    assert all(reasons(changed) for changed in (added, inside, fewer, doubled))


def test_contradictions_are_refused_even_with_a_valid_hash() -> None:
    from dataclasses import replace

    honest = record()
    cpu = replace(honest, machine=replace(MI300X, hip="")).sealed()
    nvidia = replace(honest, machine=replace(MI300X, archs=("sm_90",))).sealed()
    future = replace(honest, started_at="2999-01-01T00:00:00+00:00").sealed()
    moved = replace(honest, checks=(replace(honest.checks[0], check="errors"), honest.checks[1])).sealed()
    believed = replace(honest.checks[1].results[0], verdict=ClaimVerdict.CONFIRMED)
    better = replace(honest, checks=(honest.checks[0], replace(honest.checks[1], results=(believed,)))).sealed()

    found = [objections(r.json(), "r.json", all_claims())[1] for r in (cpu, nvidia, future, moved, better)]
    for texts, word in zip(found, ("HIP version", "no AMD chip", "future", "decided by", "prediction"), strict=True):
        assert any(word in text for text in texts), (word, texts)
        assert not any("edited" in text for text in texts)


def test_left_out_and_doubled_verdicts_are_refused_even_with_a_valid_hash() -> None:
    honest = record()
    first, second = honest.checks
    fewer = replace(honest, checks=(replace(first, results=first.results[1:]), second)).sealed()
    twice = replace(honest, checks=(replace(first, results=(*first.results, first.results[0])), second)).sealed()
    both = replace(honest, not_run=("dryrun",)).sealed()
    unknown = replace(honest, checks=(replace(first, ended="fine"), second)).sealed()

    found = [objections(one.json(), "r.json", all_claims())[1] for one in (fewer, twice, both, unknown)]
    assert found == [
        [f"{first.results[0].claim} has no verdict, although its check ran"],
        [f"{first.results[0].claim} has two verdicts"],
        ["dryrun ran and did not run"],
        ["capture-rules ended with 'fine'"],
    ]


def test_stored_records_are_accepted() -> None:
    for file in (ROOT / "evidence").glob("proof-*.json"):
        assert objections(file.read_text(), file.name, all_claims())[1] == []


def test_names_and_secrets_are_not_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada.lovelace")
    monkeypatch.setattr(socket, "gethostname", lambda: "node-17.example")
    secret = "ada.lovelace on node-17.example: TOKEN=hf_" + "a1" * 16
    text = f"{secret} in {facts.__file__} and {Path.cwd() / 'model.py'}"
    run = CheckRun(
        check="errors",
        ended="ok",
        seconds=1.0,
        results=(ClaimResult(claim="error:900", verdict=ClaimVerdict.CONFIRMED, detail=text, seen={"text": text}),),
        output=text,
    )
    machine = replace(MI300X, container="docker registry.example/ada.lovelace/rocm:7.2 sha256:12ab")
    made = make_record(machine, all_claims(), [run])

    assert not [name for name in ("ada.lovelace", "node-17", "hf_a1", str(Path.cwd())) if name in made.json()]
    assert "rocsolid/prove/facts.py and model.py" in made.checks[0].output
    assert made.machine.container == "docker registry.example/(name)/rocm:7.2 sha256:12ab"
    assert not any("edited" in text for text in objections(made.json(), "record.json", all_claims())[1])


def test_simulated_record_is_shown_everywhere_and_refused_as_evidence(tmp_path: Path) -> None:
    simulated = record("answers of HIP 7.2.4 on a simulated GPU, and public facts about the MI300X")
    file = tmp_path / "mi300x.json"
    file.write_text(simulated.json())
    page = run_cli("report", str(file), "--output", "html")
    text = run_cli("report", str(file))
    merged = run_python(MERGE, str(file), "--evidence", str(tmp_path))

    assert page.code == text.code == 0, page.err + text.err
    assert "SIMULATED" in page.out
    assert "SIMULATED" in text.out
    assert "some &lt;b&gt;raw" in page.out
    assert "confirmed on gfx942" in claims_page(all_claims(), {}, {"mi300x": simulated})
    assert merged.code == 1
    assert "simulated" in merged.err
    assert list(tmp_path.glob("proof-*")) == []


def test_the_page_of_a_record_lists_what_needs_attention_first() -> None:
    rows = [
        ClaimResult(claim=f"error:{number}", verdict=verdict, detail=verdict.value)
        for number, verdict in zip((900, 901, 902, 903), ClaimVerdict, strict=True)
    ]
    page = proof_html(
        replace(record("x"), checks=(CheckRun(check="errors", ended="ok", seconds=1.0, results=tuple(rows)),))
    )

    shown = [page.index(f"error:{number}") for number in (901, 903, 900, 902)]
    assert shown == sorted(shown)


def test_merging_a_record_lists_what_changes(tmp_path: Path) -> None:
    made = record()
    file = tmp_path / "record.json"
    file.write_text(made.json())
    merged = run_python(MERGE, str(file), "--evidence", str(tmp_path))

    assert merged.code == 0, merged.err
    assert "confirmed (69): capture-rule:begin-twice" in merged.out
    assert "refuted: support:dryrun: too many" in merged.out
    assert "prediction off: support:dryrun: registers: predicted 24, seen 80, allowed error 25%" in merged.out
    (stored,) = tmp_path.glob("proof-gfx942-2.13.0-rocm7.2-*.json")
    assert stored.read_text() == made.json()
    assert refuted_claims(all_claims(), {"mi300x": made}) == ["support:dryrun: too many (mi300x)"]


def test_an_edited_record_and_another_file_are_not_merged(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    for text, reason in ((record().json().replace("7.2.4", "7.14.0"), "edited"), ("{}", "not written by rocsolid")):
        file.write_text(text)
        merged = run_python(MERGE, str(file), "--evidence", str(tmp_path))
        assert merged.code == 1
        assert reason in merged.err
