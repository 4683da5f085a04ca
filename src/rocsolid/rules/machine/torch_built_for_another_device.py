"""The installed torch was built for a different kind of device than this machine has.

## What it does
Compares the platform that torch was built for with the GPUs in this machine.

## Why it matters
Installing a package that depends on torch can make pip replace a ROCm build with the CUDA build from PyPI. Everything
then runs on the CPU, or fails with an error about a missing NVIDIA driver.

## Example
    $ pip install some-package            # replaces torch 2.13.0+rocm7.2 with 2.13.0+cu130

## Use instead
Reinstall the build for your GPU from its own package index, and pin that version in a pip constraints file.

## When to allow it
When this program is not supposed to use the GPU.
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
    message="torch {version} is a {built} build, but this machine has {devices}",
    why="Torch does not use the GPU. Installing another package may have replaced the right build.",
    fix="Reinstall torch for {wanted} from its own package index, and pin that version in a pip constraints file.",
    check="python -c 'import torch; print(torch.version.hip, torch.version.cuda, torch.cuda.is_available())'",
    since="0.1",
    evidence=(
        issue("AMDResearch/Ryzers#80", "A CUDA build of torch replaced the ROCm build."),
        source("sglang docker/rocm.Dockerfile", "Protects its ROCm build of torch with a pip constraint."),
    ),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """A build that cannot use any of the GPUs present."""
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
