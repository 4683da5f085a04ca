"""A kernel uses tensor descriptors, and the GPU has no unit for them (TMA).

## What it does
Finds kernels that create or take tensor descriptors, on AMD chips.

## Why it matters
NVIDIA GPUs since Hopper copy such blocks with the Tensor Memory Accelerator. gfx90a, gfx942, gfx950, gfx11 and gfx12 have no such unit:
Triton replaces each descriptor by ordinary loads and stores, so a kernel that was designed around TMA may be slow.

## Example
    block = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[64, 64]).load([i, j])

## Use instead
    block = tl.load(x + rows[:, None] * N + columns[None, :], mask=...)      # in the version for AMD

## When to allow it
When the kernel is fast enough on that GPU.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY013",
    name="tensor-descriptor-without-tma",
    severity=Severity.INFO,
    message="{kernel} uses tensor descriptors; TMA is not available on {target}",
    why="Triton replaces each descriptor by ordinary loads and stores, so a kernel designed around TMA may be slow on {target}.",
    fix="Keep a version with tl.load and tl.store for {target}, and compare both on the GPU.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (lists the kernels with descriptors)",
    since="0.1",
    evidence=(
        source(
            "triton 3.7, AMD backend, run without a device",
            "Kernels that make descriptors (tl.make_tensor_descriptor) and kernels that take them compile for gfx942 and gfx1100, to global loads and stores.",
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """User kernels with tensor descriptors, on AMD chips."""
    for kernel in run.kernels:
        if kernel.descriptors and run.target.startswith("gfx"):
            yield RULE.found(
                f"{run.target} {kernel.name}",
                location=next(iter(kernel.locations), ""),
                kernel=kernel.name,
                target=run.target,
            )
