"""A number format of eight bits is used that the chip's matrix unit does not know.

## What it does
Looks for 8-bit floating-point types in the model and in its kernels, and compares them with those of the chip: the fnuz types on
gfx942, the OCP types on gfx950 and gfx12, none on gfx90a and gfx11.

## Why it matters
A scaled matrix product in the other type is refused or emulated. The same bytes read in the other type are off by a factor of two.

## Example
    torch._scaled_mm(a.to(torch.float8_e4m3fn), ...)      # on gfx942

## Use instead
    torch._scaled_mm(a.to(torch.float8_e4m3fnuz), ...)    # on gfx942; convert, never reinterpret

## When to allow it
When the type is only a format of storage, and is converted before it is computed with.
"""

from collections.abc import Iterator

from rocsolid.catalog.chips import chip
from rocsolid.model.dryrun import DryRun
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity

RULE = Rule(
    code="DRY006",
    name="fp8-of-another-generation",
    severity=Severity.WARNING,
    message="{format} is used, and {target} knows {known}",
    why="Products in it are refused or emulated there; its bytes read as the chip's own type are off by a factor of two.",
    fix="{fix}",
    check="one scaled matrix product in the chosen type against float32 on the chip",
    since="0.1",
    evidence=(issue("ROCm/legacy-rocm-build#6019", "fnuz types on gfx942 only, OCP types on gfx950 and gfx12 only."),),
)


def check_run(run: DryRun) -> Iterator[Finding]:
    """Formats the chip does not know, with the first line that uses each."""
    known = chip(run.target).fp8
    used = {use.format: use.location for graph in run.graphs for use in graph.fp8}
    for kernel in run.kernels:
        for name in kernel.fp8:
            used.setdefault(name, next(iter(kernel.locations), ""))
    for name, place in used.items():
        if name in known:
            continue
        twin = name.removesuffix("fnuz") if name.endswith("fnuz") else name.removesuffix("fn") + "fnuz"
        twin = next((k for k in known if k.startswith(twin)), "")
        yield RULE.found(
            f"{run.target} {name}",
            place=place,
            format=name,
            target=run.target,
            known=" and ".join(known) or "none",
            fix=f"convert to {twin} there" if twin else "compute in bfloat16 there",
        )
