"""An environment variable is read by a library, but does nothing here.

## What it does
Finds variables that the catalogue knows as dead, or as belonging to another platform or release than this one.

## Why it matters
Whoever set it believes in an effect that is not there.

## Example
    DEBUG_CLR_GRAPH_PACKET_CAPTURE=1       # gone since ROCm 7.2

## Use instead
Remove it.

## When to allow it
When the same environment serves another machine or release.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Autofix, Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Owner

RULE = Rule(
    code="ENV006",
    name="variable-without-effect",
    severity=Severity.INFO,
    message="{subject} is set and does nothing here",
    why="{reason}",
    fix="unset {subject}",
    check="env | grep {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every variable that is dead, or out of its platform or release."""
    for name in env.variables:
        setting = find(name)
        if setting is None or setting.owner is not Owner.PROCESS:
            continue
        if setting.no_effect:
            reason = setting.no_effect
        elif not setting.valid.holds(env):
            reason = f"It is read on {setting.valid}."
        else:
            continue
        yield RULE.found(name, evidence=setting.evidence, fix_commands=FixCommands(unset=(name,)), reason=reason)
