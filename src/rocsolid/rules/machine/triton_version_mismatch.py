"""Several Triton packages are installed, or Triton is not the version that torch requires.

## What it does
Looks for `triton`, `pytorch-triton`, `pytorch-triton-rocm` and similar packages, and compares them with the version
that torch's metadata requires.

## Why it matters
All of these packages install into the same folder and overwrite each other's files, so the folder contains
files of several releases. If torch was built with another release of Triton, errors look like bugs in torch.

## Example
    $ pip list | grep triton
    pytorch-triton-rocm  3.5.1
    triton               3.7.1

## Use instead
    pip uninstall triton pytorch-triton-rocm
    pip install --no-deps <the version torch requires>

## When to allow it
When you build Triton yourself and know that it is compatible.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS008",
    name="triton-version-mismatch",
    severity=Severity.WARNING,
    message="{problem}: {installed}{required}",
    why="{reason}",
    fix="pip uninstall triton pytorch-triton pytorch-triton-rocm   (then install the version torch requires with pip install --no-deps)",
    check="pip list | grep -i triton",
    since="0.1",
    evidence=(
        source("pip, one folder per package name", "Both packages install into the folder site-packages/triton."),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Several Triton packages, or one that is not the version torch requires."""
    required_versions = env.torch.required_triton if env.torch else ()
    required = f"; torch requires {' or '.join(required_versions)}" if required_versions else ""
    if len(env.triton_copies) > 1:
        yield RULE.found(
            "triton",
            problem="Several Triton packages are installed",
            installed=" and ".join(env.triton_copies),
            required=required,
            reason="They install into the same folder and overwrite each other's files.",
        )
    elif required_versions and env.triton_copies and env.triton_copies[0].replace(" ", "==") not in required_versions:
        yield RULE.found(
            "triton",
            severity=Severity.INFO,
            problem="The installed Triton is not the version torch requires",
            installed=env.triton_copies[0],
            required=required,
            reason="Torch was released with another version, and errors caused by the difference look like bugs in torch.",
        )
