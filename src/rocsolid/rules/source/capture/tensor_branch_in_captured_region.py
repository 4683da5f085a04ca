"""Captured code decides by a tensor's value.

## What it does
Reports `if mask.any():`, `while not torch.all(done):` and their like in the body of a capture and in functions it leads to.

## Why it matters
The test reads a value from the device, which is not possible during a capture. Where it goes through, the graph holds the
one way that was taken, for every replay.

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
When the value lies on the host.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, measured
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Source, SourceMatch
from rocsolid.rules.source.captures import READ_CASE, capture_facts
from rocsolid.rules.source.syncs import tensor_branches
from rocsolid.rules.source.syntax import match_in_region, source_text

RULE = Rule(
    code="SRC202",
    name="tensor-branch-in-captured-region",
    severity=Severity.CRITICAL,
    message="{subject} decides in {where}",
    why="The test comes to {runtimes}. Where the value can be read, every replay takes the way of that one time.",
    fix="Choose with torch.where inside, or decide before the replay which graph to replay.",
    check="rocsolid explain {call}",
    since="0.1",
    evidence=(
        measured("capture-rules-on-hip", "What HIP 6.4.3 and 7.2.4 answer, on a pretend device."),
        issue("pytorch/pytorch#155684", "Older HIP captures did not raise for illegal operations."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Tests on tensors; whether the function is captured is for the project to say."""
    for site in tensor_branches(source):
        yield from match_in_region(site, Region.CAPTURED, source_text(site.node), **capture_facts(READ_CASE))
