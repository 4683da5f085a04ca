"""A kernel's block size is not a multiple of the wavefront size.

## What it does
Reports kernel launches and `triton.Config` entries if the product of their block sizes is not a multiple of 64. A
wavefront has 64 lanes on CDNA and 32 on RDNA.

## Why it matters
AMD's data-centre GPUs execute 64 lanes together. With a block of 32, half of them are idle in every instruction.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets))

    add[(n // 32,)](x, y, out, n, BLOCK=32)

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets))

    add[(n // 256,)](x, y, out, n, BLOCK=256)

## When to allow it
When the kernel runs only on RDNA or NVIDIA GPUs, or the data has fewer than 64 elements.
"""

import ast
from collections.abc import Iterator
from math import prod

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import argument
from rocsolid.rules.source.triton import kernel_calls, kernel_constants, kernels
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC301",
    name="block-not-multiple-of-wavefront",
    severity=Severity.INFO,
    message="The block has {subject} elements ({blocks}), which is not a multiple of 64",
    why="A wavefront of AMD's data-centre GPUs has 64 lanes. Some lanes are idle in every instruction.",
    fix="Make the block a multiple of 64; for elementwise kernels, 256 or more.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        source_evidence("triton 3.7 backends/amd/compiler.py", "warp_size is 64 on gfx9, 32 on gfx10 to gfx12."),
    ),
)
_WAVEFRONT_LANES = 64


def check(source: Source) -> Iterator[SourceMatch]:
    """Launches of kernels whose block sizes are all literals."""
    block_parameters = {k.name: [p for p in k.params if p.upper().startswith("BLOCK")] for k in kernels(source)}
    for constants in kernel_constants(source):
        parameters = block_parameters.get(constants.kernel)
        blocks = constants.blocks
        if not blocks or parameters is None or set(parameters) != set(blocks):
            continue
        if _arange_ends(source, constants.kernel) != set(blocks):
            continue  # the block also depends on other constants
        elements = prod(blocks.values())
        if elements % _WAVEFRONT_LANES and elements > 1:
            sizes = ", ".join(f"{k}={v}" for k, v in blocks.items())
            yield from match_on_rocm(constants.site, source, str(elements), blocks=sizes)


def _arange_ends(source: Source, kernel: str) -> set[str]:
    """The names that the kernel passes to `tl.arange` as the end of the range."""
    ends = (argument(s.call, 1, "end") for s in kernel_calls(source, "arange") if s.scope.name == kernel)
    return {ast.unparse(end) for end in ends if end is not None}
