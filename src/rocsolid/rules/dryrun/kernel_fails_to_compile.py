"""A kernel does not compile for the chip.

## What it does
Compiles every kernel of the model, each in every configuration that would be tried, and tells which the compiler refuses or
crashes on.

## Why it matters
The first call on the chip would fail there, or fall back to another configuration without a word.

## Example
    tl.dot(a, b)                      # with a block of 8: the matrix unit wants 16 or more

## Use instead
Read the error, and change the kernel or its configuration; the line is named.

## When to allow it
When the kernel is never launched on that chip.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY001",
    name="kernel-fails-to-compile",
    severity=Severity.CRITICAL,
    message="{kernel} fails for {target} in {failed} of {configs} configurations ({config}): {error}",
    why="The first call on {target} would raise this error, or lose the configuration without a word.",
    fix="{fix}",
    check="rocsolid dryrun again for {target}",
    since="0.1",
    evidence=(source("triton, AMD backend, run without a device", "The compiler is the one that runs on the chip."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with a configuration that does not compile; critical when none is left."""
    for kernel in run.kernels:
        failed = [config for config in kernel.configs if config.error]
        if not failed:
            continue
        foreign = "write it without what belongs to the other vendor: see the finding DRY007" if kernel.foreign else ""
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.CRITICAL if len(failed) == len(kernel.configs) else Severity.WARNING,
            place=next(iter(kernel.locations), ""),
            cause=f"DRY007:{run.target} {kernel.name}" if kernel.foreign else "",
            kernel=kernel.name,
            target=run.target,
            failed=len(failed),
            configs=len(kernel.configs),
            config=failed[0].label,
            error=failed[0].error,
            fix=foreign or "change the kernel or this configuration as the error asks",
        )
