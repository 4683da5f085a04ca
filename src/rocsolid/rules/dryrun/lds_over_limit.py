"""A kernel needs more LDS (local data share) than the GPU has.

## What it does
Compares the LDS of every compiled kernel with the limit of one workgroup: 64 KiB on gfx90a, gfx942, gfx11 and
gfx12, 160 KiB on gfx950.

## Why it matters
Triton compiles such a kernel without a warning. The launch fails with OutOfResources.

## Example
    triton.Config({"BM": 256, "BN": 256, "BK": 128}, num_stages=3)      # 256 KiB: tuned for another GPU

## Use instead
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=2)       # 32 KiB

## When to allow it
When autotuning skips the configuration on that GPU and another configuration remains.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY002",
    name="lds-over-limit",
    severity=Severity.CRITICAL,
    message="{kernel} ({config}) needs {lds_bytes} bytes of LDS; {target} allows {lds_limit_bytes} per workgroup",
    why="The kernel compiles, but the launch fails with OutOfResources.",
    fix="Use smaller blocks or fewer stages for {target}.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (after the fix, the column LDS has at most {lds_limit_bytes} bytes)",
    since="0.1",
    evidence=(issue("ROCm/aiter#3257", "A kernel requests 98304 bytes on MI300X; the launch fails."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with a configuration that cannot be launched; CRITICAL if no configuration is left."""
    for kernel in run.kernels:
        compiled = [(config, config.resources) for config in kernel.configs if config.resources]
        over = [(config, used) for config, used in compiled if not used.fits]
        if not over:
            continue
        config, used = max(over, key=lambda pair: pair[1].lds_bytes)
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.CRITICAL if len(over) == len(compiled) else Severity.WARNING,
            location=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            config=config.label,
            lds_bytes=used.lds_bytes,
            lds_limit_bytes=used.lds_limit_bytes,
            target=run.target,
        )
