"""A kernel leaves room for one wave on a SIMD.

## What it does
Folds the local memory of a kernel into the occupancy that the compiler states for its registers, and tells where one wave is left
in every configuration.

## Why it matters
With a single wave nothing hides the time that a load takes. Matrix kernels are made that way on purpose; others rarely are.

## Example
    triton.Config({"XBLOCK": 4096}, num_warps=4)      # 400 registers a lane

## Use instead
    triton.Config({"XBLOCK": 1024}, num_warps=4)

## When to allow it
For a matrix kernel that keeps its tile in registers.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY004",
    name="occupancy-one",
    severity=Severity.INFO,
    message="{kernel} ({config}) leaves one wave on a SIMD of {target}: {registers} registers, {lds} bytes of local memory",
    why="With one wave nothing hides the time that a load takes.",
    fix="smaller blocks, fewer stages, or more warps",
    check="rocsolid dryrun shows 2 or more in the column waves",
    since="0.1",
    evidence=(source("triton, AMD backend, run without a device", "Its `Occupancy` counts registers only."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with one wave in every configuration."""
    for kernel in run.kernels:
        made = [(config, config.resources) for config in kernel.configs if config.resources]
        if not made or any(used.occupancy > 1 for _, used in made):
            continue
        config, used = made[0]
        yield RULE.found(
            f"{run.target} {kernel.name}",
            place=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            config=config.label,
            target=run.target,
            registers=used.registers,
            lds=used.lds_bytes,
        )
