"""An environment variable has a value that hurts here.

## What it does
Holds every variable that a library reads at start against the catalogue of values known to hang, crash, slow down or
falsify, for this platform, this release and these chips.

## Why it matters
These variables have no Python setting beside them: once the process runs, nothing can take them back.

## Example
    HIP_LAUNCH_BLOCKING=1       # left over from debugging: every launch waits for the device

## Use instead
    unset HIP_LAUNCH_BLOCKING

## When to allow it
While you debug what the variable was made for.
"""

from collections.abc import Iterator

from rocsolid.catalog import registry
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Autofix, Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Owner

RULE = Rule(
    code="ENV001",
    name="harmful-variable",
    severity=Severity.WARNING,
    message="{subject}={value}",
    why="{hazard}",
    fix="{fix}",
    check="env | grep {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every variable whose value is a declared hazard on this machine."""
    for name, value in env.variables.items():
        setting = registry.find(name)
        if setting is None or setting.owner is not Owner.PROCESS:
            continue
        hazard = setting.hazard(value, env)
        if hazard is None:
            continue
        decision = plan.get(setting.id)
        wanted = decision.value if decision else None
        keeps = isinstance(wanted, str) and wanted != value
        yield RULE.found(
            name,
            severity=hazard.severity,
            evidence=hazard.evidence,
            fix_commands=FixCommands(export={name: str(wanted)}) if keeps else FixCommands(unset=(name,)),
            value=value,
            hazard=hazard.why,
            fix=f"export {name}={wanted}" if keeps else f"unset {name}",
        )
