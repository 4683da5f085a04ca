"""An FP8 type is chosen by vendor, although GPU generations of one vendor differ.

## What it does
Reports code that chooses `float8_e4m3fnuz` on ROCm and `float8_e4m3fn` on other platforms without checking the GPU
model.

## Why it matters
gfx942 (MI300) computes in `e4m3fnuz`; gfx950 (MI350) and RDNA4 compute in `e4m3fn`, as NVIDIA does. The same bits are
different numbers in the two types: with the wrong type, values are off by a factor of two.

## Example
    import torch

    fp8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn

## Use instead
    import torch

    gfx942 = torch.version.hip and "gfx94" in torch.cuda.get_device_properties(0).gcnArchName
    fp8 = torch.float8_e4m3fnuz if gfx942 else torch.float8_e4m3fn

## When to allow it
When the code runs only on MI300.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch, walk
from rocsolid.rules.source.syntax import match_at, mentions, site_of, source_text
from rocsolid.rules.source.vendors import is_true_on_rocm

RULE = Rule(
    code="SRC310",
    name="fp8-type-chosen-by-vendor",
    severity=Severity.CRITICAL,
    message="The FP8 type is chosen by `{subject}`, which does not check the GPU model",
    why="gfx942 uses e4m3fnuz, gfx950 uses e4m3fn. With the wrong type, numbers are off by a factor of two.",
    fix='Check the GPU model: "gfx94" in torch.cuda.get_device_properties(0).gcnArchName',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        issue(
            "triton-lang/triton#7186",
            "On gfx942, Triton only emulates e4m3fn; the report calls using it there a common pitfall.",
        ),
    ),
)
_GPU_MODEL_WORDS = ("gfx", "arch", "mi3", "fnuz", "capability", "cdna")


def check(source: Source) -> Iterator[SourceMatch]:
    """Choices between the two types whose condition checks only the vendor."""
    if "fnuz" not in source.text:
        return
    for node in source.branches:
        if isinstance(node, ast.IfExp):
            sides = (ast.unparse(node.body), ast.unparse(node.orelse))
        elif isinstance(node, ast.If) and len(node.body) == len(node.orelse) == 1:
            sides = (ast.unparse(node.body[0]), ast.unparse(node.orelse[0]))
        else:
            continue
        fnuz = ["fnuz" in side for side in sides]
        fp8 = ["e4m3" in side or "e5m2" in side for side in sides]
        if (
            fnuz[0] != fnuz[1]
            and all(fp8)
            and is_true_on_rocm(node.test) is not None
            and not any(mentions(test, _GPU_MODEL_WORDS) for test in _tests(node))
        ):
            yield match_at(site_of(source, node), source_text(node.test), underline=node.test)


def _tests(node: ast.If | ast.IfExp) -> Iterator[ast.expr]:
    """The condition and those of the branches inside."""
    yield from (part.test for part in walk(node) if isinstance(part, (ast.If, ast.IfExp)))
