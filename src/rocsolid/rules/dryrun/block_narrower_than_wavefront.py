"""A kernel's block is smaller than its workgroup, so some lanes have no work.

## What it does
Compares the widest tensor of each kernel, read from the compiler's intermediate code, with the number of lanes in its
workgroup.

## Why it matters
A wavefront has 64 lanes on CDNA; a CUDA warp has 32. With a block of 32, chosen for a warp, half of the lanes repeat
the work of the others.

## Example
    kernel[grid](x, y, BLOCK=32, num_warps=1)

## Use instead
    kernel[grid](x, y, BLOCK=64, num_warps=1)      # or any multiple of 64

## When to allow it
When the data has no more elements than the block.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY005",
    name="block-narrower-than-wavefront",
    severity=Severity.WARNING,
    message="{kernel} ({config}) has {block} for {lanes} lanes on {target}",
    why="A wavefront of {target} has {wavefront} lanes. Lanes without an element of their own repeat the work of other lanes.",
    fix="Use a block that is a multiple of {wavefront}, or fewer warps.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (shows 100 % in the column lanes)",
    since="0.1",
    evidence=(source("triton, AMD backend, GPUTarget", "A warp of Triton is a wavefront: 64 lanes on CDNA."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with idle lanes in every configuration; INFO for kernels that Inductor generated."""
    for kernel in run.kernels:
        compiled = [(config, config.resources) for config in kernel.configs if config.resources]
        idle = [(config, used) for config, used in compiled if used.lanes_used < 1]
        if not compiled or len(idle) < len(compiled):
            continue
        config, used = max(idle, key=lambda pair: pair[1].lanes_used)
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.WARNING if kernel.origin == "user" else Severity.INFO,
            location=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            config=config.label,
            target=run.target,
            block=f"{used.block} element{'' if used.block == 1 else 's'}",
            lanes=config.warps * used.wavefront,
            wavefront=used.wavefront,
        )
