"""A capture is warmed up once, on the default stream.

## What it does
Reports captures whose only warm-up, in the same function, is one call outside of a side stream.

## Why it matters
Libraries make handles and workspaces for each stream at first use, and some choose kernels over several calls. A single
call on another stream than the capture's leaves that to the capture. The documentation of torch warms up several times
on a side stream.

## Example
    import torch

    model(x)
    with torch.cuda.graph(graph):
        out = model(x)

## Use instead
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        out = model(x)

## When to allow it
When the captured function uses no library that keeps state for each stream.
"""

from collections.abc import Iterator

from rocsolid.catalog.capture_rules import describe_behavior
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Sighting, Site, Source
from rocsolid.rules.source.captures import calls_of, captures, written
from rocsolid.rules.source.syntax import blocks, mentions, saw

RULE = Rule(
    code="SRC213",
    name="warmup-on-default-stream",
    severity=Severity.INFO,
    message="{subject} is warmed up by one call on the default stream, in line {warmed}",
    why="Handles and workspaces belong to a stream; what the warm-up did not make there is made inside the capture. It comes to {runtimes}.",
    fix="Warm up three times on a side stream, as torch's documentation does; rs.capture warms up where this runtime needs it.",
    check="rocsolid explain hipblaslt-handle-in-capture",
    since="0.1",
    evidence=(issue("pytorch/pytorch#196397", "A hipBLASLt handle made during capture hangs."),),
)


def check(source: Source) -> Iterator[Sighting]:
    """Captures with exactly one earlier call, neither in a loop nor on a stream."""
    for capture in captures(source):
        for name in dict.fromkeys(written(call.func) for call in capture.work()):
            earlier = [s for s in calls_of(source, name) if s.scope is capture.scope and s.line < capture.site.line]
            if len(earlier) == 1 and not _prepared(earlier[0]) and not name.startswith(("torch.", "len", "print", "?")):
                yield saw(capture.site, name, warmed=earlier[0].line, runtimes=describe_behavior("malloc"))
                break


def _prepared(call: Site) -> bool:
    for block in blocks(call):
        if block.kind in ("for", "while") or block.captured:
            return True
        if any(mentions(item.context_expr, ("stream",)) for item in getattr(block.node, "items", ())):
            return True
    return False
