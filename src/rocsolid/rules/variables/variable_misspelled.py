"""An environment variable looks like a setting, but its name is misspelled and nothing reads it.

## What it does
Compares variable names with the names that torch, Triton and the ROCm runtimes read, and with a list of wrong names
that appear in guides.

## Why it matters
A wrong name raises no error. `INDUCTOR_COORD_DESCENT=1`, recommended by a public guide, does nothing, so a speed-up
measured with it has another cause.

## Example
    INDUCTOR_COORD_DESCENT=1

## Use instead
    TORCHINDUCTOR_COORDINATE_DESCENT_TUNING=1

## When to allow it
When a program of yours reads the name.
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
    message="Environment variable {subject} is set, but nothing reads that name",
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
    """Every known wrong name, and every near miss of a name in a family whose names are all known."""
    for name, value in env.variables.items():
        if is_read(name):
            continue
        own = family(name)
        candidates = similar_variables(name)
        if name in WRONG_NAMES or (own and own.complete and candidates):
            best = candidates[0] if candidates else ""
            yield RULE.found(
                name,
                fix_commands=FixCommands(unset=(name,)),  # the user decides whether to set the correct name
                meant=f"The correct name is {best}."
                if best
                else "This setting has no environment variable; set it in Python.",
                fix=f"unset {name}" + (f" && export {best}={value}" if best else ""),
                right=best or "",
            )
