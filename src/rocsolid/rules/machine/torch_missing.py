"""Torch is not installed for this Python.

## What it does
Looks for torch where `import torch` would.

## Why it matters
Most checks need torch. Often torch is installed, but for another Python than the one that runs the probe.

## Example
    $ rocsolid probe                      # installed with pipx, outside the program's environment

## Use instead
    $ python -m pip install rocsolid      # into the environment that has torch
    $ python -m rocsolid probe

## When to allow it
On a machine where you only lint, read reports or use `rocsolid explain`.
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
    why="Settings, versions and most known problems cannot be checked.",
    fix="Run rocsolid with the Python that has torch: python -m pip install rocsolid && python -m rocsolid probe",
    check="python -c 'import torch'",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Torch is not installed."""
    if env.torch is None:
        yield RULE.found("torch", python=env.python or "unknown version")
