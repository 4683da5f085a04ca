"""A kernel has not enough registers and keeps values in memory.

## What it does
Reads from the compiler how many vector registers of each kernel were spilled, and how much scratch memory a lane uses for it.

## Why it matters
Every spilled value is written to memory and read back. Inductor throws away a configuration of its own kernels that spills more
than 32 registers on ROCm, after it has compiled it; a kernel you wrote is kept and is slow.

## Example
    triton.Config({"BM": 256, "BN": 256}, num_warps=4)      # a matrix product, gfx942, Triton 3.9.0: 249 spills

## Use instead
    triton.Config({"BM": 256, "BN": 256}, num_warps=8)      # the same block, shared by twice the lanes

## When to allow it
When the kernel was measured on the chip and is fastest so.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

_DROPPED = 32  # Inductor's triton.spill_threshold on ROCm

RULE = Rule(
    code="DRY003",
    name="registers-spill",
    severity=Severity.WARNING,
    message="{kernel} spills on {target} in {spilling} of {configs} configurations; worst: {spills} registers, {scratch} bytes of scratch ({config})",
    why="{why}",
    fix="smaller blocks or more warps for {target}",
    check="rocsolid dryrun shows 0 in the column spills",
    since="0.1",
    evidence=(
        source("torch 2.13 _inductor/config.py triton.spill_threshold", "32 on ROCm, 16 elsewhere; more is dropped."),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels that spill; a note where a configuration without spills remains."""
    for kernel in run.kernels:
        made = [(config, config.resources) for config in kernel.configs if config.resources]
        spilling = [(config, used) for config, used in made if used.spills]
        if not spilling:
            continue
        config, used = max(spilling, key=lambda pair: pair[1].spills)
        every = len(spilling) == len(made)
        why = "Every spilled value is written to memory and read back, in every launch."
        if kernel.origin != "user" and used.spills > _DROPPED:
            why = f"Inductor compiles a configuration that spills more than {_DROPPED} registers, and then drops it."
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.WARNING if every else Severity.INFO,
            place=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            spilling=len(spilling),
            configs=len(made),
            config=config.label,
            spills=used.spills,
            scratch=used.scratch_bytes,
            why=why,
            target=run.target,
        )
