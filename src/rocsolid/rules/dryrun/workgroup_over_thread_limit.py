"""A kernel starts more threads per workgroup than the GPU allows.

## What it does
Multiplies the warps of every configuration with the wavefront of the chip: 64 lanes on CDNA, 32 on RDNA and NVIDIA.

## Why it matters
A workgroup has at most 1024 threads. 32 warps are 1024 threads on NVIDIA, but 2048 on CDNA: the kernel compiles, and its launch fails.

## Example
    triton.Config({"BLOCK": 4096}, num_warps=32)

## Use instead
    triton.Config({"BLOCK": 4096}, num_warps=16 if is_hip() else 32)

## When to allow it
When autotuning skips the configuration on that GPU and another configuration remains.
"""

from collections.abc import Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity

_MAX_THREADS = 1024

RULE = Rule(
    code="DRY012",
    name="workgroup-over-thread-limit",
    severity=Severity.CRITICAL,
    message="{kernel} ({config}) starts {threads} threads per workgroup; {target} allows 1024",
    why="One warp is a wavefront of {wavefront} lanes on {target}. The kernel compiles, but its launch fails.",
    fix="Use at most {warps} warps on {target}.",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (after the fix, no configuration has more than {warps} warps)",
    since="0.1",
    evidence=(
        source(
            "triton 3.7, compiler/compiler.py: CompiledKernel._init_handles",
            "num_warps × warp size above the limit of the device raises OutOfResources.",
        ),
    ),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Kernels with a configuration that cannot be launched; CRITICAL if no configuration is left."""
    for kernel in run.kernels:
        compiled = [(config, config.resources.wavefront) for config in kernel.configs if config.resources]
        over = [(config, wavefront) for config, wavefront in compiled if config.warps * wavefront > _MAX_THREADS]
        if not over:
            continue
        config, wavefront = over[0]
        yield RULE.found(
            f"{run.target} {kernel.name}",
            severity=Severity.CRITICAL if len(over) == len(compiled) else Severity.WARNING,
            location=next(iter(kernel.locations), ""),
            kernel=kernel.name,
            config=config.label,
            threads=config.warps * wavefront,
            wavefront=wavefront,
            warps=_MAX_THREADS // wavefront,
            target=run.target,
        )
