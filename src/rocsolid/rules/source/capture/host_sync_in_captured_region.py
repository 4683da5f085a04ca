"""The host reads from the device, or waits for it, while a graph is captured.

## What it does
Reports `.item()`, `float(x.sum())`, `.cpu()`, `.tolist()`, `.numpy()`, `synchronize()`, `query()` of a stream or event, and `print` of a tensor
in the body of a capture and in functions that it leads to. Each finding says what HIP 6.4, HIP 7.2 and CUDA do with the call
that is behind it; `rocsolid explain hipStreamSynchronize` prints its rows of the table.

## Why it matters
During a capture nothing runs on the device, so there is nothing to wait for. Most of these calls are refused, and the capture is
lost. Some pass on one release and not on the next: an old event may be queried on HIP 6.4. Older HIP was reported to go on
without an error, and the replay is wrong.

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
When the line is not run during the capture.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, measured
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Sighting, Source
from rocsolid.rules.source.capture_calls import READ, facts_of, row_of
from rocsolid.rules.source.syncs import READS, conversions, prints, queries, reads, waits
from rocsolid.rules.source.syntax import in_region, text_of

RULE = Rule(
    code="SRC201",
    name="host-sync-in-captured-region",
    severity=Severity.CRITICAL,
    message="{subject} stands in {where}",
    why="Nothing runs on the device during a capture. The line comes to {runtimes}.",
    fix="Move the line out of the capture, and read the result after the replay.",
    check="rocsolid explain {call}",
    since="0.1",
    evidence=(
        measured("capture-facts-on-h200#capture-failed-message", "A capture that read a value with .item() failed."),
        measured("capture-rules-on-hip", "What HIP 6.4.3 and 7.2.4 answer, on a pretend device."),
        issue("pytorch/pytorch#155684", "Older HIP captures did not raise for illegal operations."),
    ),
)


def check(source: Source) -> Iterator[Sighting]:
    """Reads, waits, queries and prints; whether the function is captured is for the project to say."""
    for site in (*reads(source, *READS), *conversions(source), *prints(source)):
        yield from in_region(site, Region.CAPTURED, text_of(site.node), **facts_of(READ))
    for site in (*waits(source), *queries(source)):
        yield from in_region(site, Region.CAPTURED, text_of(site.node), **facts_of(row_of(site)))
