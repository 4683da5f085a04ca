"""A float32 sum is stored without an explicit dtype.

## What it does
Reports `tl.store(pointer, acc)` when `acc` was created as float32 in the kernel and nothing converts it.

## Why it matters
Triton silently converts to the type of the pointer. A reader cannot see that precision is lost here, and changing the
output's dtype changes the numbers without any change in the kernel.

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

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import argument, match_at, source_text
from rocsolid.rules.source.triton import TL, dtype_argument, kernel_calls

RULE = Rule(
    code="SRC303",
    name="implicit-cast-in-store",
    severity=Severity.INFO,
    message="`{subject}` is float32 and is stored with whatever dtype the pointer has",
    why="Triton converts it without a warning.",
    fix="Convert explicitly: tl.store(pointer, {subject}.to(pointer.dtype.element_ty))",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(upstream("triton 3.7 language/core.py store", "The value is cast to the pointer's element type."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Stores of a name that was created as float32 zeros and never converted."""
    for site in kernel_calls(source, "store"):
        value = argument(site.call, 1, "value")
        if not isinstance(value, ast.Name):
            continue
        assigned = [
            w for w in source.assignments if w.name == value.id and w.scope is site.scope and w.value is not None
        ]
        is_float32 = any(
            isinstance(w.value, ast.Call)
            and source.resolve(w.value.func) == f"{TL}zeros"
            and source.resolve(dtype_argument(w.value, 1)) == f"{TL}float32"
            for w in assigned
        )
        if is_float32 and not any(".to(" in source_text(w.value, 1000) for w in assigned):
            yield match_at(site, value.id, uncertain=True)
