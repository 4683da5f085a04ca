"""An environment variable has no effect on this machine.

## What it does
Finds variables that nothing reads, or that are read only on another platform or in another release.

## Why it matters
The person who set it expects an effect, but there is none.

## Example
    DEBUG_CLR_GRAPH_PACKET_CAPTURE=1       # removed in ROCm 7.2

## Use instead
Remove it.

## When to allow it
When another machine or release uses the same environment.
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
    message="Environment variable {subject} has no effect here",
    why="{reason}",
    fix="unset {subject}",
    check="env | grep {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every variable that is unused, or made for another platform or release."""
    for name in env.variables:
        setting = find(name)
        if setting is None or setting.owner is not Owner.PROCESS:
            continue
        if setting.no_effect:
            reason = setting.no_effect
        elif not setting.valid.holds(env):
            reason = " ".join(filter(None, [f"It is read only on {setting.valid}.", setting.elsewhere]))
        else:
            continue
        yield RULE.found(name, evidence=setting.evidence, fix_commands=FixCommands(unset=(name,)), reason=reason)
