"""An environment variable was renamed; the old name is set.

## What it does
Finds variables that are set under a former name, and reports the current name.

## Why it matters
The old name may still work for now, or may have silently stopped working. The finding says which.

## Example
    DISABLE_ADDMM_HIP_LT=1

## Use instead
    DISABLE_ADDMM_CUDA_LT=1

## When to allow it
When an older release that reads the old name uses the same environment.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Autofix, Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Owner

RULE = Rule(
    code="ENV005",
    name="variable-renamed",
    severity=Severity.INFO,
    message="Environment variable {subject} is set; its current name is {current_name}",
    why="{notes}",
    fix="unset {subject} && export {current_name}={value}",
    check="rocsolid settings {current_name}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every variable that is set under a former name."""
    for name, value in env.variables.items():
        setting = find(name)
        if setting and setting.owner is Owner.PROCESS and name in setting.former_names:
            yield RULE.found(
                name,
                evidence=setting.evidence,
                fix_commands=FixCommands(unset=(name,), export={setting.name: value}),
                current_name=setting.name,
                value=value,
                notes=setting.notes or "A future release may stop reading the old name.",
            )
