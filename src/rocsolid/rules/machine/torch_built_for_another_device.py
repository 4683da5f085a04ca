"""Torch was built for another device than the one in this machine.

## What it does
Compares what torch was built for with the accelerators the kernel shows.

## Why it matters
A package that depends on torch can make pip replace a ROCm build by the CUDA build from the package index. Everything then
runs on the CPU, or not at all, and the message speaks of a missing NVIDIA driver.

## Example
    $ pip install some-package            # brings torch 2.13.0+cu130 over 2.13.0+rocm7.2

## Use instead
Reinstall the build for your device from its own index, and give pip a constraint that names it.

## When to allow it
When the accelerator is not meant for this program.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform

RULE = Rule(
    code="SYS001",
    name="torch-built-for-another-device",
    severity=Severity.WARNING,
    message="torch {version} is a {built} build, and this machine has {devices}",
    why="The device is not used. A resolver that was asked for torch may have replaced the right build.",
    fix="reinstall torch for {wanted} from its own index, and constrain pip to that version",
    check="python -c 'import torch; print(torch.version.hip, torch.version.cuda, torch.cuda.is_available())'",
    since="0.1",
    evidence=(
        issue("AMDResearch/Ryzers#80", "A CUDA build of torch replaced the ROCm build."),
        source("sglang docker/rocm.Dockerfile", "Guards its ROCm build of torch with a pip constraint."),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """A build that cannot use any of the devices present."""
    present = {device.platform for device in env.devices}
    if env.torch is None or not present or env.platform in present:
        return
    yield RULE.found(
        "torch",
        version=env.torch.version,
        built=env.platform.label,
        devices=", ".join(sorted({f"{d.name} ({d.arch})" for d in env.devices})),
        wanted=" or ".join(sorted(p.label for p in present if p is not Platform.CPU)),
    )
