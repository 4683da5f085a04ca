"""Writes and reads plans as TOML: files that people can read, edit and keep under version control."""

import json
from collections.abc import Iterator
from typing import Any, Final

from rocsolid.errors import InputError
from rocsolid.model.codec import parse_toml

PLAN_SCHEMA: Final = "rocsolid/plan/1"


def to_toml(plan: dict[str, Any]) -> str:
    """Convert an encoded plan to TOML text; each value is followed by its reason."""
    head = [
        f"schema = {_quoted(PLAN_SCHEMA)}",
        *(f"{name} = {_quoted(plan[name])}" for name in ("profile", "platform", "torch")),
    ]
    tuned = plan.get("tuned")
    if tuned:
        head += ["", "[tuned]", *(f"{name} = {_toml_value(value)}" for name, value in tuned.items())]
    return "\n".join([*head, *(line for d in plan["decisions"] for line in _decision(d))]) + "\n"


def _decision(data: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield "[[decisions]]"
    yield f"id = {_quoted(data['id'])}"
    # TOML has no null: `value` is left out for a variable that must be unset.
    if data["value"] is not None:
        yield f"value = {_toml_value(data['value'])}"
    yield f"why = {_quoted(data['why'])}"
    # How the value is set, a value of `Channel`: option, scope, argument or process.
    yield f"channel = {_quoted(data['channel'])}"
    yield f"profile = {_quoted(data['profile'])}"
    if data["guard"]:
        yield "guard = true"
    for evidence in data["evidence"]:
        yield "[[decisions.evidence]]"
        yield from (f"{name} = {_quoted(text)}" for name, text in evidence.items())


def _toml_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a basic TOML string is written like a JSON string


def from_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML text into an encoded plan; raises InputError if it is not a plan. `name` is the file name for messages."""
    data = parse_toml(text, name)
    if data.get("schema") != PLAN_SCHEMA:
        msg = f"{name} is not a rocsolid plan: its schema is {data.get('schema')!r}, the schema of a plan is {PLAN_SCHEMA!r}"
        raise InputError(msg)
    decisions = data.get("decisions", [])
    for decision in decisions if isinstance(decisions, list) else ():
        if isinstance(decision, dict):
            decision.setdefault("value", None)
    return data
