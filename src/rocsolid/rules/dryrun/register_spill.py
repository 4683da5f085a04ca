"""A kernel runs out of registers and spills values to memory.

## What it does
Reads from the compiler how many vector registers each kernel spills, and how much scratch memory each lane uses for the
spilled values.

## Why it matters
Every spilled value is written to memory and read back. For its own kernels on ROCm, Inductor discards each
configuration that spills more than 32 registers, but only after compiling it. A kernel you wrote is kept and is slow.

## Example
    triton.Config({"BM": 256, "BN": 256}, num_warps=4)      # a matrix product, gfx942, Triton 3.9.0: 249 spills

## Use instead
    triton.Config({"BM": 256, "BN": 256}, num_warps=8)      # the same block, with twice the lanes

## When to allow it
When measurements on the GPU show that this configuration is the fastest.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

_SPILL_THRESHOLD = 32  # Inductor's triton.spill_threshold on ROCm

RULE = Rule(
    code="DRY003",
    name="register-spill",
    severity=Severity.WARNING,
    message="{kernel} spills registers on {target}: up to {spills}, in {spilling} of {configs} configurations",
    why="Worst configuration: {config}, {scratch_bytes} bytes of scratch memory. {cost}",
    fix="Use smaller blocks or more warps for {target}.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (shows 0 in the column spills)",
    since="0.1",
    evidence=(
        source(
            "torch 2.13 _inductor/config.py triton.spill_threshold",
            "32 on ROCm, 16 on other platforms; configurations that spill more are discarded.",
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels that spill; INFO if a configuration without spills remains."""
    for kernel in run.kernels:
        compiled = [(config, config.resources) for config in kernel.configs if config.resources]
        spilling = [(config, used) for config, used in compiled if used.spills]
        if not spilling:
            continue
        config, used = max(spilling, key=lambda pair: pair[1].spills)
        all_spill = len(spilling) == len(compiled)
        cost = "Every spilled value is written to memory and read back, in every launch."
        if kernel.origin != "user" and used.spills > _SPILL_THRESHOLD:
            cost = f"Inductor compiles a configuration that spills more than {_SPILL_THRESHOLD} registers, then discards it."
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.WARNING if all_spill else Severity.INFO,
            location=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            spilling=len(spilling),
            configs=len(compiled),
            config=config.label,
            spills=used.spills,
            scratch_bytes=used.scratch_bytes,
            cost=cost,
            target=run.target,
        )
