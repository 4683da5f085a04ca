"""Code in this process assigned a compiler setting.

## What it does
When the probe runs inside a program (`rs.probe()`), lists settings that were assigned, or whose default was
overwritten, since torch was imported.

## Why it matters
An assignment is easy to forget, and it affects everything compiled afterwards in the same thread.

## Example
    torch._inductor.config.max_autotune = True      # in a helper module

## Use instead
    model = rs.compile(model, profile="safe")       # the values belong to this function only

## When to allow it
When you made the assignment and want it for everything that this thread compiles.
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
    message="`{subject}` is {value}: {what_set_it} (release default: {release_default})",
    why="{harm}",
    fix="Assign the wanted value again, in the thread that compiles: {python_assignment}",
    check="rs.check(rs.probe())   (in the same process)",
    since="0.1",
)

_WHAT_SET_IT = {
    Origin.ASSIGNED: "code in this process assigned it",
    Origin.MUTATED: "code in this process changed the default itself, so torch does not report it as changed",
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that this process assigned, or whose default it overwrote."""
    for origin, what_set_it in _WHAT_SET_IT.items():
        for name in settings_changed_by(origin, env):
            yield setting_finding(RULE, name, env, plan, what_set_it=what_set_it)
