"""A kernel contains NVIDIA assembly (PTX).

## What it does
Reports `tl.inline_asm_elementwise` with PTX instructions, unless the code checks the vendor.

## Why it matters
The kernel does not compile on AMD: the AMD assembler does not know these instructions.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def fast_tanh(x, out):
        v = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [tl.load(x)], dtype=tl.float32, is_pure=True, pack=1)
        tl.store(out, v)

## Use instead
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def fast_tanh(x, out):
        tl.store(out, libdevice.tanh(tl.load(x)))

## When to allow it
When the kernel is used only on NVIDIA.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import argument, constant_text
from rocsolid.rules.source.triton import kernel_calls
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC308",
    name="inline-ptx",
    severity=Severity.WARNING,
    message="`{subject}` in `tl.inline_asm_elementwise` is PTX, NVIDIA's assembly{more}",
    why="The kernel does not compile on AMD.",
    fix="Use a function of triton.language or libdevice, or select the kernel by vendor.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "triton 3.7 language/core.py inline_asm_elementwise",
            "The instructions are passed to the target's assembler.",
        ),
    ),
)
# A PTX instruction ends in a type: `tanh.approx.f32`, `cvt.rn.bf16x2.f32`, `mov.u32`.
_PTX = re.compile(
    r"\b[a-z]+\d*(\.[a-z0-9_:]+)*\.(?:[fsub](?:8|16|32|64)|bf16|f16x2|bf16x2|e4m3x2|e5m2x2|pred)\b|%(?:tid|smid|laneid|globaltimer)"
)


def check(source: Source) -> Iterator[SourceMatch]:
    """The first inline assembly of a file whose text looks like PTX, with the number of the others."""
    found = [
        match
        for site in kernel_calls(source, "inline_asm_elementwise")
        if (text := _PTX.search(constant_text(argument(site.call, 0, "asm"), source)))
        for match in match_on_rocm(site, source, text[0])
    ]
    if found:
        more = f" ({len(found) - 1} more in this file)" if len(found) > 1 else ""
        yield replace(found[0], facts={**found[0].facts, "more": more})
