"""The host reads from the device, or waits for it, while a graph is captured.

## What it does
Reports `.item()`, `.cpu()`, `.tolist()`, `.numpy()`, `synchronize()` and `print` of a tensor in the body of a capture and in
functions that it leads to.

## Why it matters
During a capture nothing runs on the device, so there is nothing to wait for. CUDA refuses and the capture is lost; HIP
was reported to go on without an error, and the replay is wrong.

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
from rocsolid.rules.source.syncs import READS, prints, reads, waits
from rocsolid.rules.source.syntax import in_region, text_of

RULE = Rule(
    code="SRC201",
    name="host-sync-in-captured-region",
    severity=Severity.CRITICAL,
    seen="{subject} stands in {where}",
    why="Nothing runs on the device during a capture: the capture fails, or on HIP goes on and replays wrongly.",
    cure="Move the line out of the capture, and read the result after the replay.",
    check="rocsolid explain hip-capture-errors-unreported",
    since="0.1",
    evidence=(
        measured("capture-facts-on-h200#capture-failed-message", "A capture that read a value with .item() failed."),
        issue("pytorch/pytorch#155684", "HIP capture does not raise for illegal operations."),
    ),
)


def check(source: Source) -> Iterator[Sighting]:
    """Reads, waits and prints; whether the function is captured is for the project to say."""
    for site in (*reads(source, *READS), *waits(source)):
        yield from in_region(site, Region.CAPTURED, text_of(site.node))
    for site in prints(source):
        yield from in_region(site, Region.CAPTURED, text_of(site.node))
