"""A setting is assigned after a compiled function has been called, so that function does not use it.

## What it does
Reports an assignment to a torch config module that comes after a call of a compiled function in the same Python
function.

## Why it matters
A compiled function uses the settings at the time of its first call. A later assignment has no effect on it until it
happens to be compiled again.

## Example
    import torch
    import torch._inductor.config as inductor_config

    fast = torch.compile(model)
    fast(example)
    inductor_config.epilogue_fusion = False

## Use instead
    import torch

    fast = torch.compile(model, options={"epilogue_fusion": False})
    fast(example)

## When to allow it
When the setting is meant for functions that are compiled later.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import COMPILE_NAMES, SettingChange, setting_changes
from rocsolid.rules.source.syntax import match_at, runs_before

RULE = Rule(
    code="SRC104",
    name="setting-assigned-after-compile",
    severity=Severity.WARNING,
    message="`{change}` comes after `{compiled_function}` was compiled (line {compile_line})",
    why="A compiled function keeps the settings of its first call.",
    fix="Assign it before the first call, or pass it to torch.compile as options=.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "torch 2.13 _dynamo/convert_frame.py",
            "A frame is compiled at its first call, with the settings at that time.",
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments after a call of a compiled function."""
    if "compile" not in source.text:
        return
    compiled_functions = {
        (assignment.name, assignment.scope)
        for assignment in source.assignments
        if isinstance(assignment.value, ast.Call)
        and source.resolve(assignment.value.func) in COMPILE_NAMES
        and assignment.value.args
    }
    if not compiled_functions:
        return
    calls = [
        s
        for name, scope in compiled_functions
        for s in source.calls.get(name.rpartition(".")[2], ())
        if s.name == name and s.scope is scope
    ]
    for change in setting_changes(source):
        earlier_call = next((call for call in calls if _is_new_value(change) and runs_before(call, change.site)), None)
        if earlier_call:
            yield match_at(
                change.site,
                change.id,
                change=change.text,
                compiled_function=earlier_call.name,
                compile_line=earlier_call.line,
            )


def _is_new_value(change: SettingChange) -> bool:
    """Whether a literal is assigned. A name is usually a saved value that is restored."""
    return change.how == "assigned" and change.constant is not None
