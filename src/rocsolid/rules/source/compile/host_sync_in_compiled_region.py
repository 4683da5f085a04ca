"""Compiled code reads a value from the device, or waits for it.

## What it does
Reports `.item()`, `.tolist()`, `float(x.sum())` and its like, `synchronize()` and `print` of a tensor in functions that `torch.compile` traces.

## Why it matters
The compiler cannot know the value while it traces. It breaks the graph there, runs the line in Python, and begins a new
graph; the host waits for the device each time.

## Example
    import torch

    @torch.compile
    def step(x):
        scale = x.abs().max().item()
        return x / scale

## Use instead
    import torch

    @torch.compile
    def step(x):
        scale = x.abs().max()
        return x / scale

## When to allow it
When the value is needed on the host and the break was measured to cost little, or `capture_scalar_outputs` is on.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Source, SourceMatch
from rocsolid.rules.source.syncs import number_conversions, sync_calls, value_reads
from rocsolid.rules.source.syntax import match_in_region, source_text

RULE = Rule(
    code="SRC123",
    name="host-sync-in-compiled-region",
    severity=Severity.WARNING,
    message="{subject} stands in {where}",
    why="The value is not known while tracing: the graph breaks there, and the host waits for the device.",
    fix="Keep the value on the device as a tensor, or change the line out of what is compiled.",
    check="TORCH_LOGS=graph_breaks python your_script.py",
    since="0.1",
    evidence=(
        upstream("torch 2.13 _dynamo/graph_break_registry.json GB0124", "Tensor.item() breaks the graph by default."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Reads and waits; whether the function is compiled is for the project to say."""
    for site in (*value_reads(source, "item", "tolist"), *number_conversions(source), *sync_calls(source)):
        yield from match_in_region(site, Region.COMPILED, source_text(site.node))
