"""A kernel accumulates in a 16-bit type.

## What it does
Reports `tl.zeros(..., dtype=tl.float16)` or `tl.bfloat16` when values are added to it, and `tl.dot(out_dtype=...)` with
such a type.

## Why it matters
bfloat16 has eight bits of precision: after a few hundred additions, small terms are lost. float16 overflows at 65504.
The matrix units accumulate in float32 at the same speed.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(a, b, K, BLOCK: tl.constexpr):
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float16)
        for k in range(K):
            acc += tl.dot(a, b)

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(a, b, K, BLOCK: tl.constexpr):
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for k in range(K):
            acc += tl.dot(a, b)

## When to allow it
When the sum is short and you have compared the result with float32.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import keyword, match_at
from rocsolid.rules.source.triton import TL, dtype_argument, kernel_calls

RULE = Rule(
    code="SRC302",
    name="accumulator-not-float32",
    severity=Severity.WARNING,
    message="`{subject}` accumulates in {dtype}",
    why="A long sum in 16 bits loses small terms. The matrix units accumulate in float32 at the same speed.",
    fix="Accumulate in tl.float32, and convert when storing.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#bf16-accumulate",
            "0.1 added 4096 times gave 32.0 in bfloat16 and 410.0 in float32.",
        ),
        source_evidence("triton 3.7 language/core.py dot", "The accumulator is float32 unless out_dtype is set."),
    ),
)
_16_BIT_TYPES = frozenset({f"{TL}float16", f"{TL}bfloat16"})


def check(source: Source) -> Iterator[SourceMatch]:
    """16-bit accumulators that a kernel adds to, and `tl.dot` with a 16-bit result."""
    if "triton" not in source.text:
        return
    assignments_by_value = {
        id(assignment.value): assignment for assignment in source.assignments if isinstance(assignment.value, ast.Call)
    }
    for site in kernel_calls(source, "zeros", "full"):
        dtype = source.resolve(dtype_argument(site.call, 1 if site.name.endswith("zeros") else 2))
        assignment = assignments_by_value.get(id(site.node))
        if dtype in _16_BIT_TYPES and assignment is not None and _is_added_to(source, assignment.name, site.scope.name):
            yield match_at(site, assignment.name, dtype=dtype.rpartition(".")[2])
    for site in kernel_calls(source, "dot"):
        dtype = source.resolve(keyword(site.call, "out_dtype"))
        if dtype in _16_BIT_TYPES:
            # Somebody chose this type, usually to add it to a float32 accumulator.
            yield match_at(site, "tl.dot", dtype=dtype.rpartition(".")[2], uncertain=True)


def _is_added_to(source: Source, name: str, kernel: str) -> bool:
    for assignment in source.assignments:
        if assignment.name != name or assignment.scope.name != kernel or assignment.value is None:
            continue
        if isinstance(assignment.node, ast.AugAssign) and isinstance(assignment.node.op, ast.Add):
            return True
        value = assignment.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and name in ast.unparse(value).split(" + "):
            return True
        if (
            isinstance(value, ast.Call)
            and source.resolve(value.func) == f"{TL}dot"
            and name in map(ast.unparse, value.args)
        ):
            return True
    return False
