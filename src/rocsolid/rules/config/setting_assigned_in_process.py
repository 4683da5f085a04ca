"""Code in this process assigned a compiler setting.

## What it does
When the probe runs inside a program (`rs.probe()`), lists settings that were assigned since torch was imported, or whose
default was overwritten.

## Why it matters
An assignment is made once and forgotten, and it holds for everything compiled afterwards in the same thread.

## Example
    torch._inductor.config.max_autotune = True      # in a helper three modules away

## Use instead
    model = rs.compile(model, profile="safe")       # values ride on the function

## When to allow it
When the assignment is yours, and everything compiled should have it.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import found, moved_by

RULE = Rule(
    code="CFG008",
    name="setting-assigned-in-process",
    severity=Severity.WARNING,
    message="{how} {subject} {value}; this release ships {upstream}",
    why="{hazard}",
    fix="{python}",
    check="rs.check(rs.probe())",
    since="0.1",
)

_HOW = {Origin.ASSIGNED: "code in this process made", Origin.MUTATED: "code in this process overwrote the default of"}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that this process assigned or whose default it overwrote."""
    for origin, how in _HOW.items():
        for name in moved_by(origin, env):
            yield found(RULE, name, env, plan, how=how)
