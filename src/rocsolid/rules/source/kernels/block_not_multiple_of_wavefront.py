"""A kernel's block size is not a multiple of the wavefront size.

## What it does
Reports launches and configurations whose block sizes, multiplied, are not a multiple of 64. A wavefront has 64 lanes on
CDNA and 32 on RDNA.

## Why it matters
AMD's data-centre GPUs run 64 lanes together. With a block of 32, half of them are idle in every instruction.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) + tl.load(y + at))

    add[(n // 32,)](x, y, out, n, BLOCK=32)

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) + tl.load(y + at))

    add[(n // 256,)](x, y, out, n, BLOCK=256)

## When to allow it
When the kernel runs only on RDNA or NVIDIA, or the data is that small.
"""

import ast
from collections.abc import Iterator
from math import prod

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import argument, is_nvidia_only, is_vendor_specific, match_at
from rocsolid.rules.source.triton import kernel_calls, kernels, launches

RULE = Rule(
    code="SRC301",
    name="block-not-multiple-of-wavefront",
    severity=Severity.INFO,
    message="The block has {subject} elements ({blocks}), which is not a multiple of 64",
    why="A wavefront of AMD's data-centre GPUs has 64 lanes. Some lanes are idle in every instruction.",
    fix="Make the block a multiple of 64; for elementwise kernels, 256 or more.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(upstream("triton 3.7 backends/amd/compiler.py", "warp_size is 64 on gfx9, 32 on gfx10 to gfx12."),),
)
_LANES = 64


def check(source: Source) -> Iterator[SourceMatch]:
    """Launches of kernels whose block sizes are all literals."""
    if is_nvidia_only(source):
        return
    declared = {k.name: [p for p in k.params if p.upper().startswith("BLOCK")] for k in kernels(source)}
    for launch in launches(source):
        parameters = declared.get(launch.kernel)
        blocks = launch.blocks
        if not blocks or parameters is None or set(parameters) != set(blocks) or is_vendor_specific(launch.site):
            continue
        if _arange_ends(source, launch.kernel) != set(blocks):
            continue  # the block also depends on other constants
        elements = prod(blocks.values())
        if elements % _LANES and elements > 1:
            yield match_at(launch.site, str(elements), blocks=", ".join(f"{k}={v}" for k, v in blocks.items()))


def _arange_ends(source: Source, kernel: str) -> set[str]:
    """The names that end the kernel's `tl.arange` calls."""
    ends = (argument(s.call, 1, "end") for s in kernel_calls(source, "arange") if s.scope.name == kernel)
    return {ast.unparse(end) for end in ends if end is not None}
