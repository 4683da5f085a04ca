"""A setting has its default value, and the profile would set another value.

## What it does
Lists the values that the profile would change on this machine.

## Why it matters
Nothing is wrong. The list shows in advance what `rocsolid run` or `rs.apply` would change here.

## Example
    inductor.compile_worker_wait_timeout is 0; profile safe sets 900

## Use instead
    rs.compile(model, profile="safe")

## When to allow it
Always. The finding is for information only.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import same
from rocsolid.rules.changed_settings import python_assignment, script_assignment

RULE = Rule(
    code="CFG010",
    name="setting-differs-from-profile",
    severity=Severity.INFO,
    message="`{subject}` has its default {value}; profile {profile} sets {profile_value}",
    why="Reason for {profile_value}: {reason}",
    fix="{python_assignment}   (or let rs.compile, rs.apply or rocsolid run set it)",
    check="rocsolid settings --live {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting with its default value that the plan would change."""
    for decision in plan:
        observed = env.settings.get(decision.id)
        if observed is None or observed.changed or same(observed.value, decision.value):
            continue
        yield RULE.found(
            decision.id,
            evidence=decision.evidence,
            fix_commands=FixCommands(python=(script_assignment(decision.id, decision.value),)),
            value=repr(observed.value),
            profile_value=repr(decision.value),
            profile=plan.profile,
            reason=decision.why,
            python_assignment=python_assignment(decision.id, decision.value),
        )
