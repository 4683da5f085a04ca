"""A number of warps assumes 32 lanes per warp.

## What it does
Reports `num_warps` of 32 or more in kernel launches and in `triton.Config`, and products of `num_warps` and 32.

## Why it matters
On AMD's data-centre GPUs, a warp has 64 lanes and a block has at most 1024 threads, so 16 warps are the maximum. A
kernel tuned with 32 warps does not launch, and `num_warps * 32` is half of the real number of threads.

## Example
    import triton

    kernel[(64,)](x, BLOCK=4096, num_warps=32)

## Use instead
    import triton

    kernel[(64,)](x, BLOCK=4096, num_warps=16)

## When to allow it
When the configuration is used only on NVIDIA.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import is_nvidia_only, is_vendor_specific, literal, match_at, site_of, source_text
from rocsolid.rules.source.triton import kernel_constants

RULE = Rule(
    code="SRC307",
    name="num-warps-assumes-32-lanes",
    severity=Severity.WARNING,
    message="`{subject}` assumes warps of 32 lanes",
    why="On AMD's data-centre GPUs, a warp has 64 lanes and a block has at most 1024 threads, which is 16 warps.",
    fix="Tune num_warps for each vendor, and read the warp size from Triton's target instead of writing 32.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("triton 3.7 backends/amd/compiler.py", "warp_size is 64 on gfx9."),),
)
_TOO_MANY_WARPS = 32
_NVIDIA_LANES = 32


def check(source: Source) -> Iterator[SourceMatch]:
    """32 or more warps, and products of `num_warps` and 32."""
    if is_nvidia_only(source):
        return
    if "num_warps" not in source.text:
        return
    for constants in kernel_constants(source):
        if constants.values.get("num_warps", 0) >= _TOO_MANY_WARPS and not is_vendor_specific(constants.site):
            yield match_at(constants.site, f"num_warps={constants.values['num_warps']}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = (node.left, node.right)
            if any(literal(s) == _NVIDIA_LANES for s in sides) and any("num_warps" in _name(s) for s in sides):
                yield match_at(site_of(source, node), source_text(node))


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
