"""An environment variable moved the default of a compiler setting.

## What it does
Compares every Inductor and Dynamo setting with the default of the installed release, and names the variable that
makes the difference.

## Why it matters
Images and profiles of shells set such variables, and nothing in the program shows it. The public ROCm images of
SGLang end with `ENV TORCHINDUCTOR_MAX_AUTOTUNE=1`: every compile in every mode then searches kernels, and what took
two minutes takes a quarter of an hour, or never ends.

## Example
    $ env | grep AUTOTUNE
    TORCHINDUCTOR_MAX_AUTOTUNE=1

## Use instead
    unset TORCHINDUCTOR_MAX_AUTOTUNE

An assignment in Python wins over a variable of this kind, but only in the thread that makes it (torch 2.12 and later).
`rocsolid run` cleans the environment before torch is imported.

## When to allow it
When you set the variable yourself and know what the value costs.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Autofix, Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import found, moved_by

RULE = Rule(
    code="CFG001",
    name="setting-changed-by-variable",
    severity=Severity.WARNING,
    message="the environment variable {by} makes {subject} {value}; this release ships {upstream}",
    why="{hazard}",
    fix="unset {by}   (in Python, before the first compile and in the thread that compiles: {python})",
    check="rocsolid settings --live {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that a variable moved."""
    for name in moved_by(Origin.VARIABLE, env):
        yield found(RULE, name, env, plan)
