"""Dataclasses to JSON and back."""

import json
import re
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest
from tests.support import ROOT, make_env

from rocsolid.errors import InputError
from rocsolid.model.codec import decode, dumps, encode, loads
from rocsolid.model.compile_log import BreakReport, CompileLog
from rocsolid.model.environment import (
    CheckStatus,
    Container,
    Environment,
    Integrity,
    Origin,
    ProbeMode,
    SettingValue,
    StartupHook,
)
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, FixCommands, Severity
from rocsolid.model.saved_probe import ProbeRecord


def a_record() -> ProbeRecord:
    env = make_env(
        moved={"inductor.max_autotune": (True, False, Origin.VARIABLE, "TORCHINDUCTOR_MAX_AUTOTUNE")},
        container=Container(engine="podman", image="x"),
        startup_hooks=(StartupHook(kind="pth", file="a.pth"),),
    )
    finding = Finding(
        code="CFG001",
        name="n",
        severity=Severity.CRITICAL,
        subject="s",
        message="a",
        why="b",
        fix="c",
        check="d",
        evidence=(issue("a/b#1", "says"),),
        fix_commands=FixCommands(unset=("X",), export={"Y": "1"}),
        facts={"value": "True"},
    )
    return ProbeRecord(environment=env, findings=(finding,), profile="safe")


def test_record_survives_json() -> None:
    record = a_record()

    assert decode(ProbeRecord, json.loads(json.dumps(encode(record)))) == record


def test_ignores_a_field_from_a_newer_version() -> None:
    data = encode(make_env())
    data["invented_later"] = 1

    assert decode(Environment, data) == make_env()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"platform": "vax"}, 'document.platform: expected one of rocm, cuda, cpu, found "vax"'),
        ({"devices": 3}, "document.devices: expected a list, found 3"),
        ({"python": 3}, "document.python: expected str, found 3"),
        ({"settings": {"x": 1}}, "document.settings.x: expected an object, found 1"),
    ],
)
def test_error_names_the_path_of_a_wrong_value(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        decode(Environment, {**encode(make_env()), **change})

    assert str(error.value) == message


def test_refuses_a_missing_field() -> None:
    data = encode(make_env())
    del data["taken_at"]

    with pytest.raises(InputError, match="taken_at"):
        decode(Environment, data)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/1"}', "<html>"])
def test_refuses_documents_of_other_programs(text: str) -> None:
    with pytest.raises(InputError, match=r"^thing\.json (is|was) not "):
        loads(text, "thing.json")


def test_document_starts_with_its_schema() -> None:
    assert list(json.loads(dumps("rocsolid/x/1", b=1))) == ["schema", "b"]


def test_json_page_lists_every_field_and_value() -> None:
    """docs/reference/json.md has a table for each of these types, with all fields in its first column."""
    compiled = get_args(get_type_hints(CompileLog)["graphs"])[0]
    graph_break = get_args(get_type_hints(BreakReport)["breaks"])[0]
    page = (ROOT / "docs/reference/json.md").read_text(encoding="utf-8")
    tables = {
        "A finding": Finding,
        "A setting in effect": SettingValue,
        "A compiled graph": compiled,
        "A graph break": graph_break,
        "The environment": Environment,
    }
    for heading, kind in tables.items():
        table = (
            page.partition(f"## {heading}\n")[2]
            .partition("\n\n| Origin")[0]
            .partition("\n\n| Confidence")[0]
            .partition("\n## ")[0]
        )
        listed = [
            name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
        ]
        assert sorted(listed) == sorted(f.name for f in fields(kind)), heading
    for member in (*Origin, *CheckStatus, *Integrity, *ProbeMode):
        assert f"`{member.value}`" in page
