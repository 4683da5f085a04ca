"""The installed torch is older or newer than the releases rocsolid supports.

## What it does
Compares the installed version with the supported range.

## Why it matters
Commands that only read (probe, lint, reports) still work. Functions that change a running program use private torch
names, which may not exist in other releases.

## Example
    torch 2.6.0

## Use instead
A supported release of torch, or only the commands that do not change a running program.

## When to allow it
When you use only the probe, the linter and the reports.
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
    message="torch {version} is outside the supported releases ({supported})",
    why="rocsolid does not know the defaults of this release, so advice about settings may not apply.",
    fix="Use torch {supported}, or treat findings about settings with caution.",
    check="rocsolid probe",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """A torch version outside the supported range."""
    if env.torch and not SUPPORTED_TORCH.holds(env.torch.version):
        yield RULE.found("torch", version=env.torch.version, supported=str(SUPPORTED_TORCH))
