"""An environment variable has a value that causes hangs, crashes, wrong results or slowdowns here.

## What it does
Looks up the value of every environment variable that libraries read at start-up in rocsolid's catalogue of harmful values,
for the platform, versions and GPUs of this machine.

## Why it matters
These variables have no equivalent setting in Python: once the process runs, their effect cannot be undone.

## Example
    HIP_LAUNCH_BLOCKING=1       # left over from debugging: every kernel launch waits for the GPU

## Use instead
    unset HIP_LAUNCH_BLOCKING

## When to allow it
While you debug with that variable.
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
    message="Environment variable {subject}={value} is harmful on this machine",
    why="{harm}",
    fix="{fix}",
    check="env | grep {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every variable with a value that the catalogue declares harmful on this machine."""
    for name, value in env.variables.items():
        setting = registry.find(name)
        if setting is None or setting.owner is not Owner.PROCESS:
            continue
        hazard = setting.hazard(value, env)
        if hazard is None:
            continue
        decision = plan.get(setting.id)
        wanted = decision.value if decision else None
        has_replacement = isinstance(wanted, str) and wanted != value
        yield RULE.found(
            name,
            severity=hazard.severity,
            evidence=hazard.evidence,
            fix_commands=FixCommands(export={name: str(wanted)}) if has_replacement else FixCommands(unset=(name,)),
            value=value,
            harm=hazard.why,
            fix=f"export {name}={wanted}" if has_replacement else f"unset {name}",
        )
