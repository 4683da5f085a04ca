"""A kernel holds assembly or library functions of the other vendor.

## What it does
Looks in kernels you wrote for inline assembly that is not the chip's, and for functions of the other vendor's device library.

## Why it matters
PTX means nothing to an AMD assembler. Such a kernel does not compile there, and some ends the compiler's process.

## Example
    tl.inline_asm_elementwise("cvt.rn.f16.f32 $0, $1;", ...)

## Use instead
    x.to(tl.float16)                      # or a branch by target: the same in words that both compilers know

## When to allow it
When the kernel is never launched on that chip.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY007",
    name="code-of-other-vendor",
    severity=Severity.CRITICAL,
    message="{kernel} holds {what}, which {target} does not know",
    why="{target} has no such instructions.",
    fix="write it in Triton's own words, or keep a second version and choose by triton.runtime.driver.active.get_current_target()",
    check="rocsolid dryrun compiles the kernel for {target}",
    since="0.1",
    evidence=(source("triton, AMD backend, run without a device", "Inline PTX ends in an assembler error."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """User kernels with code of the other vendor."""
    for kernel in run.kernels:
        if kernel.foreign:
            yield RULE.found(
                f"{run.target} {kernel.name}",
                place=next(iter(kernel.locations), ""),
                kernel=kernel.name,
                what=", ".join(kernel.foreign),
                target=run.target,
            )
