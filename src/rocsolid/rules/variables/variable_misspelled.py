"""An environment variable looks like a setting, but its name is misspelled and nothing reads it.

## What it does
Compares variable names with the names that torch, Triton and the ROCm runtimes read, and with a list of wrong names
that appear in guides.

## Why it matters
Setting a wrong name raises no error. `INDUCTOR_COORD_DESCENT=1`, recommended by a public guide, does nothing, so a
speed-up measured with it has another cause.

## Example
    INDUCTOR_COORD_DESCENT=1

## Use instead
    TORCHINDUCTOR_COORDINATE_DESCENT_TUNING=1

## When to allow it
When a program of yours reads the name.
"""

from collections.abc import Iterator

from rocsolid.catalog.variables import WITHOUT_EFFECT, WRONG_NAMES, family, is_read, similar_variables
from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source
from rocsolid.model.finding import Autofix, Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="ENV002",
    name="variable-misspelled",
    severity=Severity.WARNING,
    message="Environment variable {subject} is set, but nothing reads that name",
    why="It has no effect. {hint}",
    fix="{fix}",
    check="rocsolid settings {correct_name}",
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
    """Every name on the list of wrong names, and every name similar to one that a library reads whose names are all known."""
    for name, value in env.variables.items():
        if is_read(name):
            continue
        library = family(name)
        correct_names = similar_variables(name)
        if name in WRONG_NAMES or (library and library.complete and correct_names):
            correct_name = correct_names[0] if correct_names else ""
            yield RULE.found(
                name,
                fix_commands=FixCommands(unset=(name,)),  # the user decides whether to set the correct name
                hint=_hint(name, correct_name),
                fix=f"unset {name}" + (f" && export {correct_name}={value}" if correct_name else ""),
                correct_name=correct_name,
            )


def _hint(name: str, correct_name: str) -> str:
    if correct_name:
        return f"The correct name is {correct_name}."
    if name in WITHOUT_EFFECT:
        return "The setting of that name in torch has no effect either, so there is nothing to set instead."
    return "This setting has no environment variable; set it in Python."
