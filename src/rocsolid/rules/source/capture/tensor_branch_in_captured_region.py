"""Captured code branches on the value of a tensor.

## What it does
Reports `if mask.any():`, `while not torch.all(done):` and similar conditions in a capture and in functions called from
it.

## Why it matters
The condition reads a value from the GPU, which is not possible during a capture. If a release allows it,
the graph contains only the branch that was taken during the capture, and every replay takes that branch.

## Example
    import torch

    with torch.cuda.graph(graph):
        if mask.any():
            out = model(x)

## Use instead
    import torch

    with torch.cuda.graph(graph):
        out = torch.where(mask.any(), model(x), x)

## When to allow it
When the tensor is on the CPU.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, measured
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import VALUE_READ_RULE, capture_facts, match_in_capture
from rocsolid.rules.source.syncs import tensor_branches
from rocsolid.rules.source.syntax import source_text

RULE = Rule(
    code="SRC202",
    name="tensor-branch-in-captured-region",
    severity=Severity.CRITICAL,
    message="Branch on tensor value `{subject}` in {where}",
    why="The underlying call is {runtime_call_and_its_behavior} (`rocsolid explain {runtime_call}`). If the value can be read, every replay takes the branch that was taken during the capture.",
    fix="Select with torch.where inside the capture, or decide before the replay which graph to replay.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured("capture-rules-on-hip", "What HIP 6.4.3 and 7.2.4 return, on a simulated GPU."),
        issue("pytorch/pytorch#155684", "Older HIP captures did not raise for illegal operations."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Conditions on tensors. The linter decides later whether the function is captured."""
    for site in tensor_branches(source):
        yield from match_in_capture(site, source, source_text(site.node), **capture_facts(VALUE_READ_RULE))
