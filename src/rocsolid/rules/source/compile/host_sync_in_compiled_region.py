"""Compiled code reads a value from the GPU, or waits for the GPU.

## What it does
Reports `.item()`, `.tolist()`, `float(x.sum())` and similar calls, and `synchronize()`, in functions that
`torch.compile` traces.

## Why it matters
The compiler does not know the value while tracing, and it cannot trace `synchronize()`. The graph breaks there: the
line runs in Python, a new graph starts, and the CPU waits for the GPU at every call.

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
When you need the value on the CPU and have measured that the graph break costs little, or when
`capture_scalar_outputs` is on. In a file that names this setting, values are not reported.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Source, SourceMatch
from rocsolid.rules.source.syncs import number_conversions, sync_calls, value_reads
from rocsolid.rules.source.syntax import match_in_region, source_text

RULE = Rule(
    code="SRC123",
    name="host-sync-in-compiled-region",
    severity=Severity.WARNING,
    message="Graph break: host sync `{subject}` in {where}",
    why="{why}",
    fix="{fix}",
    check="TORCH_LOGS=graph_breaks python your_script.py",
    since="0.1",
    evidence=(
        source_evidence(
            "torch 2.13 _dynamo/graph_break_registry.json GB0124", "Tensor.item() breaks the graph by default."
        ),
    ),
)
_READ_WHY = "The value is not known while tracing: the graph breaks at this line, and the CPU waits for the GPU."
_READ_FIX = "Keep the value on the GPU as a tensor, or move the line out of the compiled function."
_SYNC_WHY = "A synchronization cannot be traced: the graph breaks at this line, and the CPU waits for the GPU."
_SYNC_FIX = "Move the line out of the compiled function."


def check(source: Source) -> Iterator[SourceMatch]:
    """Value reads and syncs. The linter decides later whether the function is compiled."""
    # A file that names the setting decides about it, and with it a value is a symbol of the graph.
    captured = "capture_scalar_outputs" in source.text
    for site in () if captured else (*value_reads(source, "item", "tolist"), *number_conversions(source)):
        yield from match_in_region(site, Region.COMPILED, source_text(site.node), why=_READ_WHY, fix=_READ_FIX)
    for site in sync_calls(source):
        yield from match_in_region(site, Region.COMPILED, source_text(site.node), why=_SYNC_WHY, fix=_SYNC_FIX)
