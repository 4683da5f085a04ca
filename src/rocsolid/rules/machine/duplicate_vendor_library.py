"""Two copies of a vendor library are in reach of one process.

## What it does
Looks for copies of libamd_smi where a process would load them from: ROCm's folder, torch's, and the pip packages that bring
one.

## Why it matters
Two copies of libamd_smi in one process initialise the driver interface twice, and `torch.cuda.device_count()` answers 0 on a
machine with eight devices.

## Example
    /opt/rocm/lib/libamd_smi.so.26 and site-packages/amdsmi/libamd_smi.so

## Use instead
Remove the pip package `amdsmi`, or make it the version that belongs to the installed ROCm.

## When to allow it
When `torch.cuda.device_count()` is right.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform

RULE = Rule(
    code="SYS006",
    name="duplicate-vendor-library",
    severity=Severity.WARNING,
    message="there are {count} copies of {subject}: {copies}",
    why="Two of them in one process can make torch see no device at all.",
    fix="keep the copy that belongs to the ROCm torch uses, and remove the other (often: pip uninstall amdsmi)",
    check="python -c 'import torch; print(torch.cuda.device_count())'",
    since="0.1",
    evidence=(
        issue("pytorch/pytorch#186516", "No device is seen when a second copy is loaded."),
        issue("sgl-project/sglang#35319", "An image with two copies."),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """More than one copy of the library that does not stand it."""
    copies = env.libraries.get("libamd_smi", ())
    if env.platform is Platform.ROCM and len(copies) > 1:
        yield RULE.found("libamd_smi", count=len(copies), copies=", ".join(copies))
