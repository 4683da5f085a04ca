"""An environment variable changed the default of a compiler setting.

## What it does
Compares every Inductor and Dynamo setting with the default of the installed release, and names the variable that
changed it.

## Why it matters
Container images and shell profiles set such variables, and nothing in the program shows that. The public ROCm images of
SGLang end with `ENV TORCHINDUCTOR_MAX_AUTOTUNE=1`: every compile in every mode then autotunes kernels, and a compile of
two minutes takes a quarter of an hour, or never ends.

## Example
    $ env | grep AUTOTUNE
    TORCHINDUCTOR_MAX_AUTOTUNE=1

## Use instead
    unset TORCHINDUCTOR_MAX_AUTOTUNE

An assignment in Python overrides such a variable, but only in the thread that makes it (torch 2.12 and later).
`rocsolid run` cleans the environment before torch is imported.

## When to allow it
When you set the variable yourself and know the cost of the value.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Autofix, Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by

RULE = Rule(
    code="CFG001",
    name="setting-changed-by-variable",
    severity=Severity.WARNING,
    message="Environment variable {set_by} sets `{subject}` to {value} (release default: {release_default})",
    why="{harm}",
    fix="unset {set_by}   (or in Python, before the first compile, in the thread that compiles: {python_assignment})",
    check="rocsolid settings --live {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting whose default a variable changed."""
    for name in settings_changed_by(Origin.VARIABLE, env):
        yield setting_finding(RULE, name, env, plan)
