"""An environment variable looks like a setting, and nobody reads that name.

## What it does
Compares the names set here with the names that torch, Triton and the ROCm runtimes ask for, and with a list of names that
guides spell wrongly.

## Why it matters
A wrong name raises no error. `INDUCTOR_COORD_DESCENT=1`, as a public guide has it, does nothing at all, and whoever set it
goes on to measure a difference that is not there.

## Example
    INDUCTOR_COORD_DESCENT=1

## Use instead
    TORCHINDUCTOR_COORDINATE_DESCENT_TUNING=1

## When to allow it
When a program of your own reads the name.
"""

from collections.abc import Iterator

from rocsolid.catalog.variables import WRONG_NAMES, family, is_read, similar_variables
from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source
from rocsolid.model.finding import Autofix, Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="ENV002",
    name="variable-misspelled",
    severity=Severity.WARNING,
    message="{subject} is set, and nothing we know reads that name",
    why="It has no effect. {meant}",
    fix="{fix}",
    check="rocsolid settings {right}",
    since="0.1",
    autofix=Autofix.ASK,
    evidence=(
        source(
            "torch 2.9 to 2.15, triton 3.7, HIP runtime 6.4.3 and 7.2.4",
            "The name is in none of their sources or libraries.",
        ),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every name that is a known mistake, or a slip of the pen in a family whose names we hold in full."""
    for name, value in env.variables.items():
        if is_read(name):
            continue
        own = family(name)
        right = similar_variables(name)
        if name in WRONG_NAMES or (own and own.complete and right):
            best = right[0] if right else ""
            yield RULE.found(
                name,
                fix_commands=FixCommands(unset=(name,)),  # whether the setting is wanted at all is for the user to say
                meant=f"The name that is read: {best}." if best else "The setting has no variable; set it in Python.",
                fix=f"unset {name}" + (f"; if you meant it: export {best}={value}" if best else ""),
                right=best or "",
            )
