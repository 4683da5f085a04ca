"""A setting has its upstream default, and the profile would choose another value.

## What it does
Lists the values that applying the profile would change on this machine.

## Why it matters
Nothing is wrong. The list says what `rocsolid run` or `rs.apply` would do here, before they do it.

## Example
    inductor.compile_worker_wait_timeout is 0, the profile safe takes 900

## Use instead
    rs.compile(model, profile="safe")

## When to allow it
Always; this is a note.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import same
from rocsolid.rules.changed_settings import python_line

RULE = Rule(
    code="CFG010",
    name="setting-off-profile",
    severity=Severity.INFO,
    message="{subject} is {value}, as this release ships it; the profile {profile} takes {wanted}",
    why="{reason}",
    fix="{python}   (or let rs.compile, rs.apply or rocsolid run set it)",
    check="rocsolid settings --live {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every value that the plan would change and nobody has moved."""
    for decision in plan:
        observed = env.settings.get(decision.id)
        if observed is None or observed.changed or same(observed.value, decision.value):
            continue
        yield RULE.found(
            decision.id,
            evidence=decision.evidence,
            fix_commands=FixCommands(python=(python_line(decision.id, decision.value),)),
            value=repr(observed.value),
            wanted=repr(decision.value),
            profile=plan.profile,
            reason=decision.why,
            python=python_line(decision.id, decision.value),
        )
