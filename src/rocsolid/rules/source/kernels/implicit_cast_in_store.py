"""A float32 sum is stored without saying as what.

## What it does
Reports `tl.store(pointer, acc)` where `acc` was made as float32 in the kernel and nothing converts it.

## Why it matters
Triton converts silently to the type the pointer has. A reader cannot see that precision is lost here, and a change of the
output's type changes the numbers without a change of the kernel.

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
    message="{subject} was summed in float32 and is stored as whatever type the pointer has",
    why="Triton converts without a word.",
    fix="Say it: tl.store(pointer, {subject}.to(pointer.dtype.element_ty)).",
    check="rocsolid explain SRC303",
    since="0.1",
    evidence=(upstream("triton 3.7 language/core.py store", "The value is cast to the pointer's element type."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Stores of a plain name that began as float32 zeros and was never converted."""
    for site in kernel_calls(source, "store"):
        value = argument(site.call, 1, "value")
        if not isinstance(value, ast.Name):
            continue
        made = [w for w in source.assignments if w.name == value.id and w.scope is site.scope and w.value is not None]
        began = any(
            isinstance(w.value, ast.Call)
            and source.resolve(w.value.func) == f"{TL}zeros"
            and source.resolve(dtype_argument(w.value, 1)) == f"{TL}float32"
            for w in made
        )
        if began and not any(".to(" in source_text(w.value, 1000) for w in made):
            yield match_at(site, value.id, uncertain=True)
