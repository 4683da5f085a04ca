"""A kernel multiplies blocks that are too small for the matrix units.

## What it does
Reports launches and `triton.Config` entries with a block size below 16, for kernels that call `tl.dot`.

## Why it matters
AMD's matrix units work on tiles of 16 or 32. For smaller blocks, Triton silently computes the product with
multiply-adds on the vector units, at a fraction of the speed. On NVIDIA, Triton pads the block.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(a, b, out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        tl.store(out, tl.dot(tl.load(a), tl.load(b)))

    matmul[(1,)](a, b, out, BLOCK_M=8, BLOCK_N=64)

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(a, b, out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        tl.store(out, tl.dot(tl.load(a), tl.load(b)))

    matmul[(1,)](a, b, out, BLOCK_M=16, BLOCK_N=64)

## When to allow it
When the kernel is only for NVIDIA, or the product is not on the hot path.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.triton import kernel_constants, uses_dot
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC306",
    name="dot-too-small-for-matrix-units",
    severity=Severity.WARNING,
    message="`{kernel}` calls `tl.dot` with blocks of {subject}",
    why="AMD's matrix units need blocks of at least 16. For smaller blocks, Triton falls back to multiply-adds on the vector units.",
    fix="Use at least 16 in every dimension, and mask the elements beyond the data.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "triton 3.7 backends/amd/compiler.py get_min_dot_size",
            "Falls back to FMA for blocks that are too small for the matrix cores.",
        ),
    ),
)
_MIN_SIZE = 16
_DIMENSIONS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")


def check(source: Source) -> Iterator[SourceMatch]:
    """Matrix dimensions below 16, for kernels of this file that call `tl.dot`."""
    for constants in kernel_constants(source):
        small = {k: v for k, v in constants.blocks.items() if k.upper() in _DIMENSIONS and 0 < v < _MIN_SIZE}
        if small and uses_dot(source, constants.kernel):
            sizes = ", ".join(f"{k}={v}" for k, v in small.items())
            yield from match_on_rocm(constants.site, source, sizes, kernel=constants.kernel)
