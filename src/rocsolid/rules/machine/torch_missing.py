"""Torch is not installed for this Python.

## What it does
Looks for torch where `import torch` would.

## Why it matters
Most checks have nothing to look at. Often the probe simply runs under another Python than the program.

## Example
    $ rocsolid probe                      # installed with pipx, away from the program's environment

## Use instead
    $ python -m pip install rocsolid      # into the environment that has torch
    $ python -m rocsolid probe

## When to allow it
On a machine that only lints, explains or reads reports.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS002",
    name="torch-missing",
    severity=Severity.WARNING,
    message="torch is not installed for this Python ({python})",
    why="Settings, versions and most known problems cannot be judged.",
    fix="install rocsolid into the environment that has torch and run `python -m rocsolid probe` there",
    check="python -c 'import torch'",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """No torch."""
    if env.torch is None:
        yield RULE.found("torch", python=env.python)
