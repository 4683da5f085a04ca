"""A kernel uses so many registers or so much LDS that only one wave fits on a SIMD.

## What it does
Combines a kernel's LDS (local data share) with the occupancy that the compiler reports for its registers, and lists
kernels with one wave in every configuration.

## Why it matters
With a single wave, nothing hides the latency of memory loads. Matrix kernels are often built that way on purpose; other
kernels rarely are.

## Example
    triton.Config({"XBLOCK": 4096}, num_warps=4)      # 400 registers per lane

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
    name="single-wave-occupancy",
    severity=Severity.INFO,
    message="{kernel} ({config}) allows only one wave per SIMD on {target}",
    why="It uses {registers} registers and {lds_bytes} bytes of LDS. With one wave, nothing hides the latency of memory loads.",
    fix="Use smaller blocks, fewer stages, or more warps.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (shows 2 or more in the column waves)",
    since="0.1",
    evidence=(
        source(
            "triton, AMD backend, run without a device",
            "The `Occupancy` that the compiler reports counts registers only.",
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with one wave in every configuration."""
    for kernel in run.kernels:
        compiled = [(config, config.resources) for config in kernel.configs if config.resources]
        if not compiled or any(used.occupancy > 1 for _, used in compiled):
            continue
        config, used = compiled[0]
        yield RULE.found(
            f"{run.target} {kernel.name}",
            location=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            config=config.label,
            target=run.target,
            registers=used.registers,
            lds_bytes=used.lds_bytes,
        )
