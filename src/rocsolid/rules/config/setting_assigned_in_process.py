"""Code in this process assigned a compiler setting.

## What it does
When the probe runs inside a program (`rs.probe()`), lists settings that were assigned, or whose default was
overwritten, since torch was imported.

## Why it matters
An assignment is easy to forget, and it affects everything compiled afterwards in the same thread.

## Example
    torch._inductor.config.max_autotune = True      # in a helper three modules away

## Use instead
    model = rs.compile(model, profile="safe")       # the values belong to this function only

## When to allow it
When you made the assignment and everything compiled should use it.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by

RULE = Rule(
    code="CFG008",
    name="setting-assigned-in-process",
    severity=Severity.WARNING,
    message="`{subject}` is {value}: {how} (release default: {upstream})",
    why="{hazard}",
    fix="{python}",
    check="rs.check(rs.probe())",
    since="0.1",
)

_HOW = {
    Origin.ASSIGNED: "code in this process assigned it",
    Origin.MUTATED: "code in this process overwrote its default",
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that this process assigned, or whose default it overwrote."""
    for origin, how in _HOW.items():
        for name in settings_changed_by(origin, env):
            yield setting_finding(RULE, name, env, plan, how=how)
