"""The model uses an FP8 type that the GPU's matrix units do not support.

## What it does
Looks for FP8 types in the model and its kernels, and compares them with those of the GPU: the fnuz types on gfx942, the
OCP types on gfx950 and gfx12, none on gfx90a and gfx11.

## Why it matters
A scaled matrix product in an unsupported type fails or is emulated. If its bytes are reinterpreted as the other
type, values are off by a factor of two.

## Example
    torch._scaled_mm(a.to(torch.float8_e4m3fn), ...)      # on gfx942

## Use instead
    fp8 = torch.float8_e4m3fnuz                            # on gfx942; convert the values, never reinterpret the bytes
    scale = a.abs().max() / torch.finfo(fp8).max           # 240, and 448 for e4m3fn: larger values become NaN
    torch._scaled_mm((a / scale).to(fp8), ...)

## When to allow it
When the type is only used for storage and is converted before computing.
"""

from collections.abc import Iterator

from rocsolid.catalog.chips import chip
from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY006",
    name="unsupported-fp8-type",
    severity=Severity.WARNING,
    message="{fp8_type} is used, but {target} supports {supported_types}",
    why="Matrix products in this type fail or are emulated there. If its bytes are reinterpreted as the supported type, values are off by a factor of two.",
    fix="{fix}",
    check="rocsolid dryrun FILE.py:FUNCTION --target {target}   (then compare a matrix product in the new type with float32 on the GPU)",
    since="0.1",
    evidence=(issue("ROCm/legacy-rocm-build#6019", "fnuz types on gfx942 only, OCP types on gfx950 and gfx12 only."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """FP8 types that the GPU does not support, with the first line that uses each."""
    supported = chip(run.target).fp8
    used = {use.format: use.location for graph in run.graphs for use in graph.fp8}
    for kernel in run.kernels:
        for name in kernel.fp8:
            used.setdefault(name, next(iter(kernel.locations), ""))
    for name, location in used.items():
        if name in supported:
            continue
        equivalent = name.removesuffix("fnuz") if name.endswith("fnuz") else name.removesuffix("fn") + "fnuz"
        equivalent = next((k for k in supported if k.startswith(equivalent)), "")
        yield RULE.found(
            f"{run.target} {name}",
            location=location,
            fp8_type=name,
            target=run.target,
            supported_types=" and ".join(supported) or "no FP8 type",
            fix=f"Convert on {run.target}: x.to(torch.{equivalent}), with a scale that uses torch.finfo(torch.{equivalent}).max; "
            "larger values become NaN or infinite."
            if equivalent
            else f"Compute in bfloat16 on {run.target}: x.to(torch.bfloat16)",
        )
