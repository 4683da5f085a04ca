"""One process can load two copies of a vendor library.

## What it does
Looks for copies of libamd_smi where a process would load it from: the ROCm folder, the torch folder, and pip packages
that contain it.

## Why it matters
Two copies of libamd_smi in one process initialise the driver interface twice. `torch.cuda.device_count()` then returns
0 on a machine with eight GPUs.

## Example
    /opt/rocm/lib/libamd_smi.so.26 and site-packages/amdsmi/libamd_smi.so

## Use instead
Remove the pip package `amdsmi`, or install the version that belongs to the installed ROCm.

## When to allow it
When `torch.cuda.device_count()` returns the right number.
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
    message="Found {count} copies of {subject}: {copies}",
    why="If one process loads two of them, torch may see no GPU at all.",
    fix="Keep the copy that belongs to torch's ROCm and remove the other, for example: pip uninstall amdsmi",
    check="python -c 'import torch; print(torch.cuda.device_count())'",
    since="0.1",
    evidence=(
        issue("pytorch/pytorch#186516", "No device is seen when a second copy is loaded."),
        issue("sgl-project/sglang#35319", "An image with two copies."),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """More than one copy of libamd_smi on ROCm."""
    copies = env.libraries.get("libamd_smi", ())
    if env.platform is Platform.ROCM and len(copies) > 1:
        yield RULE.found("libamd_smi", count=len(copies), copies=", ".join(copies))
