"""Compiled code branches on the value of a tensor.

## What it does
Reports `if mask.any():`, `while not torch.all(done):`, `assert torch.equal(a, b)` and similar conditions in functions
that `torch.compile` traces.

## Why it matters
The compiler does not know the value while tracing, so it cannot choose a branch. The graph breaks, the CPU waits for
the GPU, and with `fullgraph=True` the compile fails.

## Example
    import torch

    @torch.compile
    def step(x, mask):
        if mask.any():
            x = x * 2
        return x

## Use instead
    import torch

    @torch.compile
    def step(x, mask):
        return torch.where(mask.any(), x * 2, x)

## When to allow it
When the code is rarely called and both branches are too expensive to compute every time. `torch.cond` may still avoid
the graph break.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Source, SourceMatch
from rocsolid.rules.source.syncs import tensor_branches
from rocsolid.rules.source.syntax import match_in_region, source_text

RULE = Rule(
    code="SRC124",
    name="tensor-branch-in-compiled-region",
    severity=Severity.WARNING,
    message="Graph break: branch on tensor value `{subject}` in {where}",
    why="The value is not known while tracing: the graph breaks at this line, or the compile fails with fullgraph=True.",
    fix="Compute both sides and select with torch.where(condition, a, b), or use torch.cond.",
    check="TORCH_LOGS=graph_breaks python your_script.py",
    since="0.1",
    evidence=(
        source_evidence(
            "torch 2.13 _dynamo/graph_break_registry.json GB0170", "Data-dependent branching breaks the graph."
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Conditions on tensors. The linter decides later whether the function is compiled."""
    for site in tensor_branches(source):
        yield from match_in_region(site, Region.COMPILED, source_text(site.node))
