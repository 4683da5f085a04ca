"""Compiled code calls a Python function of a vendor library.

## What it does
Reports calls of functions from `aiter`, and of flash-attention's extension modules, in compiled code.

## Why it matters
Such wrappers choose kernels in Python and call extensions that the compiler cannot trace: the graph breaks there. As a
registered operator, the same kernel stays in the graph.

## Example
    import torch
    from aiter import flash_attn_func

    @torch.compile
    def attention(q, k, v):
        return flash_attn_func(q, k, v)

## Use instead
    import rocsolid as rs
    import torch

    attention_op = rs.vendor_op("mine::attention", kernel, fake=fake, reference=reference)

    @torch.compile
    def attention(q, k, v):
        return attention_op(q, k, v)

## When to allow it
When the installed release registers that function as an operator; `rs.audit_op` shows whether it does.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import claim
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Source, SourceMatch
from rocsolid.rules.source.syntax import match_in_region

RULE = Rule(
    code="SRC114",
    name="vendor-wrapper-in-compiled-region",
    severity=Severity.INFO,
    message="`{subject}` in {where} may break the graph",
    why="The compiler cannot trace the extensions that a vendor wrapper calls. Unless the extensions are registered as operators, the graph breaks.",
    fix="Register the kernel with rs.vendor_op, and call that operator.",
    check="TORCH_LOGS=graph_breaks python your_script.py",
    since="0.1",
    on_by_default=False,
    evidence=(claim("overview guide, line 64", "Python wrappers of vendor operators break the graph."),),
)
_PACKAGES = ("aiter.", "flash_attn_2_cuda.", "flash_attn_cuda.", "flash_attn_3_cuda.")


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls of names imported from these packages."""
    if not any(
        site.name.startswith(_PACKAGES) or site.name in ("aiter", "flash_attn_2_cuda") for site in source.imports
    ):
        return
    for sites in source.calls.values():
        for site in sites:
            if site.name.startswith(_PACKAGES):
                yield from match_in_region(site, Region.COMPILED)
