"""A kernel sums up in a type of sixteen bits.

## What it does
Reports `tl.zeros(..., dtype=tl.float16 or tl.bfloat16)` whose name is summed into, and `tl.dot(out_dtype=...)` of such a type.

## Why it matters
bfloat16 has eight bits of precision: after a few hundred additions small terms vanish, and float16 overflows at 65504.
The matrix units sum in float32 at the same speed.

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
When the sum is short and was checked against float32.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import keyword, match_at
from rocsolid.rules.source.triton import TL, dtype_argument, kernel_calls

RULE = Rule(
    code="SRC302",
    name="accumulator-not-float32",
    severity=Severity.WARNING,
    message="{subject} sums up in {dtype}",
    why="Small terms vanish in a long sum of sixteen bits; the matrix units sum in float32 at the same speed.",
    fix="Accumulate in tl.float32, and convert when storing.",
    check="rocsolid explain SRC302",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#bf16-accumulate",
            "0.1 added 4096 times gave 32.0 in bfloat16 and 410.0 in float32.",
        ),
        upstream("triton 3.7 language/core.py dot", "The accumulator is float32 unless out_dtype says otherwise."),
    ),
)
_SHORT = frozenset({f"{TL}float16", f"{TL}bfloat16"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Short zeros that something is added to, and products of a short type."""
    made = {id(w.value): w for w in source.assignments if isinstance(w.value, ast.Call)}
    for site in kernel_calls(source, "zeros", "full"):
        dtype = source.resolve(dtype_argument(site.call, 1 if site.name.endswith("zeros") else 2))
        write = made.get(id(site.node))
        if dtype in _SHORT and write is not None and _summed(source, write.name, site.scope.name):
            yield match_at(site, write.name, dtype=dtype.rpartition(".")[2])
    for site in kernel_calls(source, "dot"):
        dtype = source.resolve(keyword(site.call, "out_dtype"))
        if dtype in _SHORT:
            yield match_at(site, "tl.dot", dtype=dtype.rpartition(".")[2])


def _summed(source: Source, name: str, kernel: str) -> bool:
    for write in source.assignments:
        if write.name != name or write.scope.name != kernel or write.value is None:
            continue
        if isinstance(write.node, ast.AugAssign) and isinstance(write.node.op, ast.Add):
            return True
        value = write.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and name in ast.unparse(value).split(" + "):
            return True
        if (
            isinstance(value, ast.Call)
            and source.resolve(value.func) == f"{TL}dot"
            and name in map(ast.unparse, value.args)
        ):
            return True
    return False
