"""A kernel does not compile for the target GPU.

## What it does
Compiles every kernel of the model in every configuration that would be tried, and lists those that fail or crash the
compiler.

## Why it matters
The first call on that GPU would fail, or silently use another configuration.

## Example
    tl.dot(a, b)                      # with a block of 8: the matrix units need 16 or more

## Use instead
Read the error, and change the kernel or its configuration. The finding names the line.

## When to allow it
When the kernel is never launched on that GPU.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY001",
    name="kernel-fails-to-compile",
    severity=Severity.CRITICAL,
    message="{kernel} does not compile for {target} ({failed} of {configs} configurations): {error}",
    why="With {config}, the first call on {target} raises this error; if there are other configurations, torch skips this one without a message.",
    fix="{fix}",
    check="rocsolid dryrun --target {target}",
    since="0.1",
    evidence=(
        source(
            "Triton's AMD backend, run without a GPU", "The dry run uses the same compiler as a machine with that GPU."
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with a configuration that does not compile; CRITICAL if no configuration is left."""
    for kernel in run.kernels:
        failed = [config for config in kernel.configs if config.error]
        if not failed:
            continue
        foreign = "Remove the code of the other vendor: see the finding DRY007." if kernel.foreign else ""
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.CRITICAL if len(failed) == len(kernel.configs) else Severity.WARNING,
            location=next(iter(kernel.locations), ""),
            cause=f"DRY007:{run.target} {kernel.name}" if kernel.foreign else "",
            kernel=kernel.name,
            target=run.target,
            failed=len(failed),
            configs=len(kernel.configs),
            config=failed[0].label,
            error=failed[0].error,
            fix=foreign or "Change the kernel or this configuration as the error says.",
        )
