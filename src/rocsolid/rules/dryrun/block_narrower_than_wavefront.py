"""A kernel's block leaves lanes of a wavefront without work.

## What it does
Reads the widest tensor of each kernel from the intermediate code and compares it with the lanes of its workgroup.

## Why it matters
A wavefront has 64 lanes on CDNA where a warp of CUDA has 32. A block of 32, chosen for a warp, leaves half of the lanes doing
what others do already.

## Example
    kernel[grid](x, y, BLOCK=32, num_warps=1)

## Use instead
    kernel[grid](x, y, BLOCK=64, num_warps=1)      # or any multiple of 64

## When to allow it
When the problem has no more elements than that.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY005",
    name="block-narrower-than-wavefront",
    severity=Severity.WARNING,
    message="{kernel} ({config}) works on {block} elements with {lanes} lanes of {target}, whose wavefront has {wavefront}",
    why="The other lanes take the room and repeat the work.",
    fix="a block that is a multiple of {wavefront}, or fewer warps",
    check="rocsolid dryrun shows 100 % in the column lanes",
    since="0.1",
    evidence=(source("triton, AMD backend, GPUTarget", "A warp of Triton is a wavefront: 64 lanes on CDNA."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels whose every configuration leaves lanes idle; a note for those Inductor sized to the problem."""
    for kernel in run.kernels:
        made = [(config, config.resources) for config in kernel.configs if config.resources]
        idle = [(config, used) for config, used in made if used.lanes_used < 1]
        if not made or len(idle) < len(made):
            continue
        config, used = max(idle, key=lambda pair: pair[1].lanes_used)
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.WARNING if kernel.origin == "user" else Severity.INFO,
            place=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            config=config.label,
            target=run.target,
            block=used.block,
            lanes=config.warps * used.wavefront,
            wavefront=used.wavefront,
        )
