"""Code patches how Dynamo saves the random state. The patch has no effect, or it is harmful.

## What it does
Reports assignments to `preserve_global_state` in `torch._dynamo.convert_frame` or `torch._dynamo.utils`, as some guides
recommend.

## Why it matters
Since torch 2.9, the function is bound when the module is imported, so a replacement is never called.
`torch._dynamo.utils` never had such a function. On 2.8 and older, the replacement takes effect and drops most of the
state that the original restores. The error that the patch was meant to fix does not occur
in 2.10 and later.

## Example
    import torch._dynamo.convert_frame as convert_frame

    convert_frame.preserve_global_state = our_version

## Use instead
    import torch

    with torch.compiler.set_stance("fail_on_recompile"), torch.cuda.graph(graph):
        out = model(x)

## When to allow it
Never. Compile before the capture, so that nothing is compiled during it.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC111",
    name="ineffective-rng-patch",
    severity=Severity.WARNING,
    message="Patching `{subject}` does not fix RNG errors in captures",
    why="{why}",
    fix='Remove the patch, warm up before the capture, and capture under torch.compiler.set_stance("fail_on_recompile").',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#rng-patches-inert",
            "Both replacements were in place before a compile; neither was called.",
        ),
        source_evidence("torch 2.9 to 2.15 _dynamo/convert_frame.py", "The decorator is applied once, at import."),
        issue(
            "pytorch/pytorch#131782", "The same error, about reading the random state during a capture, occurs on CUDA."
        ),
    ),
)
_WHY = {
    "torch._dynamo.convert_frame.preserve_global_state": (
        "From torch 2.9 on, the function is bound at import and the patch is never called. In torch 2.8 and older, the patch drops state that must be restored."
    ),
    "torch._dynamo.utils.preserve_global_state": "No torch release has this name, so nothing calls it.",
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Every assignment to one of the two names."""
    for assignment in source.assignments:
        if assignment.name in _WHY:
            yield match_at(assignment, assignment.name, why=_WHY[assignment.name])
