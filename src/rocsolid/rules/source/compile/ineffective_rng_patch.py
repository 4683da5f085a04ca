"""Dynamo's handling of random numbers is patched, as guides advise, and the patch does nothing or harm.

## What it does
Reports assignments to `preserve_global_state` in `torch._dynamo.convert_frame` or `torch._dynamo.utils`.

## Why it matters
Since torch 2.9 the function is bound when the module is imported, so that a replacement is never called;
`torch._dynamo.utils` never had one. On 2.8 and older the replacement takes effect and drops most of what the original
restores. The error that it was written for is gone since 2.10.

## Example
    import torch._dynamo.convert_frame as convert_frame

    convert_frame.preserve_global_state = our_version

## Use instead
    import torch

    with torch.compiler.set_stance("fail_on_recompile"), torch.cuda.graph(graph):
        out = model(x)

## When to allow it
Never; compile before the capture, and nothing is compiled in it.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC111",
    name="ineffective-rng-patch",
    severity=Severity.WARNING,
    message="{subject} is replaced",
    why="{why}",
    fix='Remove the patch, warm up before the capture, and capture under torch.compiler.set_stance("fail_on_recompile").',
    check="rocsolid explain rng-state-read-in-capture",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#rng-patches-inert",
            "Both replacements were in place before a compile; neither was called.",
        ),
        upstream("torch 2.9 to 2.15 _dynamo/convert_frame.py", "The decorator is applied once, at import."),
        issue("pytorch/pytorch#131782", "The error in capture is the same on CUDA."),
    ),
)
_WHY = {
    "torch._dynamo.convert_frame.preserve_global_state": (
        "Since torch 2.9 it is bound at import and the patch is never called; before, it drops state that must be restored."
    ),
    "torch._dynamo.utils.preserve_global_state": "No release has that name; nothing calls it.",
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Every assignment to one of the two names."""
    for write in source.assignments:
        if write.name in _WHY:
            yield match_at(write, write.name, why=_WHY[write.name])
