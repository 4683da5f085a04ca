"""Captured code reads a value from the GPU, or waits for the GPU.

## What it does
Reports `.item()`, `float(x.sum())`, `.cpu()`, `.tolist()`, `.numpy()`, `synchronize()`, `query()` of a stream or event,
and `print` of a tensor in a capture and in functions called from it. Each finding lists what HIP 6.4, HIP 7.2 and CUDA
do with the underlying call; `rocsolid explain hipStreamSynchronize`, for example, shows the details.

## Why it matters
During a capture nothing runs on the GPU, so there is no value to read and nothing to wait for. Most of these calls
raise an error and the capture fails. Some work with one release but not with the next: HIP 6.4 allows the query of an
event that was recorded before the capture, HIP 7.2 does not. Older HIP releases were reported to continue without an
error, and the replay then returns wrong results.

## Example
    import torch

    with torch.cuda.graph(graph):
        out = model(x)
        torch.cuda.synchronize()

## Use instead
    import torch

    with torch.cuda.graph(graph):
        out = model(x)
    torch.cuda.synchronize()

## When to allow it
When the line does not run during the capture.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, measured
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import VALUE_READ_RULE, capture_facts, capture_rule_id, match_in_capture
from rocsolid.rules.source.syncs import (
    VALUE_READS,
    captured_prints,
    number_conversions,
    stream_queries,
    sync_calls,
    value_reads,
)
from rocsolid.rules.source.syntax import source_text

RULE = Rule(
    code="SRC201",
    name="host-sync-in-captured-region",
    severity=Severity.CRITICAL,
    message="Host sync `{subject}` in {where}",
    why="Nothing runs on the GPU during a capture. The underlying call is {runtime_call_and_its_behavior} (`rocsolid explain {runtime_call}`).",
    fix="Move the line out of the capture, and read the result after the replay.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured("capture-facts-on-h200#capture-failed-message", "A capture that read a value with .item() failed."),
        measured("capture-rules-on-hip", "What HIP 6.4.3 and 7.2.4 return, on a simulated GPU."),
        issue("pytorch/pytorch#155684", "Older HIP captures did not raise for illegal operations."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Value reads, syncs, queries and prints. The linter decides later whether the function is captured."""
    for site in (*value_reads(source, *VALUE_READS), *number_conversions(source), *captured_prints(source)):
        yield from match_in_capture(site, source, source_text(site.node), **capture_facts(VALUE_READ_RULE))
    for site in (*sync_calls(source), *stream_queries(source)):
        yield from match_in_capture(site, source, source_text(site.node), **capture_facts(capture_rule_id(site)))
