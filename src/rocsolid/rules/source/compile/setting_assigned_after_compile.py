"""A setting is assigned after the function it was meant for was compiled.

## What it does
Reports an assignment to a torch config module that comes, in the same function, after a call of a compiled function.

## Why it matters
A compiled function uses the settings at the time of its first call. A later assignment does not change it, or takes
effect at some later recompile.

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
When the setting is meant for what is compiled later.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import COMPILE_NAMES, setting_changes
from rocsolid.rules.source.syntax import match_at, runs_before

RULE = Rule(
    code="SRC104",
    name="setting-assigned-after-compile",
    severity=Severity.WARNING,
    message="`{change}` comes after `{compiled}` was compiled in line {called}",
    why="A compiled function keeps the settings of its first call.",
    fix="Assign it before the first call, or pass it to torch.compile as options=.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        upstream(
            "torch 2.13 _dynamo/convert_frame.py",
            "A frame is compiled at its first call, with the settings at that time.",
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments after a call of a compiled function."""
    compiled = {
        (w.name, w.scope)
        for w in source.assignments
        if isinstance(w.value, ast.Call) and source.resolve(w.value.func) in COMPILE_NAMES and w.value.args
    }
    if not compiled:
        return
    calls = [
        s
        for name, scope in compiled
        for s in source.calls.get(name.rpartition(".")[2], ())
        if s.name == name and s.scope is scope
    ]
    for change in setting_changes(source):
        before = next((c for c in calls if change.how == "assigned" and runs_before(c, change.at)), None)
        if before:
            yield match_at(change.at, change.id, change=change.text, compiled=before.name, called=before.line)
