"""Torch is older or newer than the releases that rocsolid knows.

## What it does
Compares the installed version with the supported range.

## Why it matters
Reading works; what rocsolid does to a running program leans on names that other releases may not have.

## Example
    torch 2.6.0

## Use instead
A release in the supported range, or the reading commands only.

## When to allow it
When you use the probe, the lint and the reports only.
"""

from collections.abc import Iterator

from rocsolid.catalog.support import SUPPORTED_TORCH
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS003",
    name="unsupported-torch-version",
    severity=Severity.INFO,
    message="torch {version} lies outside the supported releases ({supported})",
    why="Values are read as usual, but defaults of that release are not known to us and advice may not fit.",
    fix="use torch {supported}, or take the findings about settings with care",
    check="rocsolid probe",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """A version outside the range."""
    if env.torch and not SUPPORTED_TORCH.holds(env.torch.version):
        yield RULE.found("torch", version=env.torch.version, supported=str(SUPPORTED_TORCH))
