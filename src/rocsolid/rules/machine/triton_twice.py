"""Two distributions bring a package called triton, or not the one torch asks for.

## What it does
Looks for `triton`, `pytorch-triton`, `pytorch-triton-rocm` and their like, and compares with what torch's own metadata pins.

## Why it matters
All of them install into the same folder: the last one wins, file by file, and the result is neither. A Triton of another
release than torch was built with fails in ways that look like bugs of torch.

## Example
    $ pip list | grep triton
    pytorch-triton-rocm  3.5.1
    triton               3.7.1

## Use instead
    pip uninstall triton pytorch-triton-rocm
    pip install --no-deps <the one torch asks for>

## When to allow it
When you build Triton yourself and know that it fits.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS008",
    name="triton-twice",
    severity=Severity.WARNING,
    message="{subject}: {installed}{asked}",
    why="{reason}",
    fix="uninstall all of them, then install the one torch asks for with --no-deps",
    check="pip list | grep -i triton",
    since="0.1",
    evidence=(source("pip, one folder per package name", "Both distributions own the folder site-packages/triton."),),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Two copies, or one that is not what torch pins."""
    wanted = env.torch.pinned if env.torch else ()
    asked = f"; torch asks for {' or '.join(wanted)}" if wanted else ""
    if len(env.triton_copies) > 1:
        yield RULE.found(
            "two Tritons",
            installed=" and ".join(env.triton_copies),
            asked=asked,
            reason="They share one folder, so that each overwrites files of the other.",
        )
    elif wanted and env.triton_copies and env.triton_copies[0].replace(" ", "==") not in wanted:
        yield RULE.found(
            "another Triton",
            severity=Severity.INFO,
            installed=env.triton_copies[0],
            asked=asked,
            reason="Torch was released with another version; what breaks looks like a bug of torch.",
        )
