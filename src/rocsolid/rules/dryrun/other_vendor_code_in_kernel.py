"""A kernel contains assembly or library functions of another vendor.

## What it does
Searches the kernels you wrote for inline assembly of another vendor, and for functions of another vendor's device
library.

## Why it matters
AMD's assembler does not support PTX. The kernel does not compile, and some such kernels crash the compiler.
Triton 3.9 compiles some of them to an empty kernel, without an error: the result is never written.

## Example
    tl.inline_asm_elementwise("cvt.rn.f16.f32 $0, $1;", ...)

## Use instead
    x.to(tl.float16)                      # code that both compilers support, or a branch by target

## When to allow it
When the kernel is never launched on that GPU.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY007",
    name="other-vendor-code-in-kernel",
    severity=Severity.CRITICAL,
    message="{kernel} contains {foreign_code}, which {target} does not support",
    why="{target} has no such instructions, so the kernel does not compile for it.",
    fix="Use functions of triton.language, import device functions with `from triton.language.extra import libdevice`, or keep a second version and select it with triton.runtime.driver.active.get_current_target()",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (compiles the kernel for {target})",
    since="0.1",
    evidence=(
        source("triton, AMD backend, run without a device", "Inline PTX ends in an assembler error."),
        source(
            "triton 3.9.0, AMD backend, run without a device", "Inline PTX ends in an empty kernel, without an error."
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """User kernels with code of another vendor."""
    for kernel in run.kernels:
        if kernel.foreign:
            yield RULE.found(
                f"{run.target} {kernel.name}",
                location=next(iter(kernel.locations), ""),
                kernel=kernel.name,
                foreign_code=", ".join(kernel.foreign),
                target=run.target,
            )
