"""A float32 sum is stored without an explicit dtype.

## What it does
Reports `tl.store(pointer, acc)` when `acc` was created as float32 in the kernel and nothing converts it.

## Why it matters
Triton silently converts the value to the type of the pointer. The code does not show that precision is lost here, and
if a caller passes an output of another dtype, the results change without any change in the kernel.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def total(x, out, BLOCK: tl.constexpr):
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        acc += tl.load(x)
        tl.store(out, acc)

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def total(x, out, BLOCK: tl.constexpr):
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        acc += tl.load(x)
        tl.store(out, acc.to(out.dtype.element_ty))

## When to allow it
When the output is float32.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import argument, match_at, source_text
from rocsolid.rules.source.triton import TL, dtype_argument, kernel_calls

RULE = Rule(
    code="SRC303",
    name="implicit-cast-in-store",
    severity=Severity.INFO,
    message="float32 `{subject}` is stored without an explicit conversion to the pointer's dtype",
    why="Triton converts it to the dtype of the pointer without a warning.",
    fix="Convert explicitly: tl.store(pointer, {subject}.to(pointer.dtype.element_ty))",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        source_evidence("triton 3.7 language/core.py store", "The value is cast to the pointer's element type."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Stores of a name that was created as float32 zeros and never converted."""
    for site in kernel_calls(source, "store"):
        value = argument(site.call, 1, "value")
        if not isinstance(value, ast.Name):
            continue
        assigned = [
            assignment
            for assignment in source.assignments
            if assignment.name == value.id and assignment.scope is site.scope and assignment.value is not None
        ]
        is_float32 = any(
            isinstance(assignment.value, ast.Call)
            and source.resolve(assignment.value.func) == f"{TL}zeros"
            and source.resolve(dtype_argument(assignment.value, 1)) == f"{TL}float32"
            for assignment in assigned
        )
        if is_float32 and not any(".to(" in source_text(assignment.value, 1000) for assignment in assigned):
            yield match_at(site, value.id, uncertain=True)
