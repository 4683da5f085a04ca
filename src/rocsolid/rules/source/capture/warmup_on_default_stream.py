"""A capture is warmed up by a single call on the default stream.

## What it does
Reports captures whose only warm-up, in the same function, is one call outside a side stream.

## Why it matters
Libraries create handles and workspaces for each stream at first use, and some choose kernels over several calls. A
single call on another stream than the capture's leaves that work to the capture. Torch's documentation warms up several
times on a side stream.

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
When the captured function uses no library that keeps state per stream.
"""

from collections.abc import Iterator

from rocsolid.catalog.capture_rules import describe_behavior
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.captures import calls_written_as, captures, dotted_name
from rocsolid.rules.source.syntax import enclosing_blocks, match_at, mentions

RULE = Rule(
    code="SRC213",
    name="warmup-on-default-stream",
    severity=Severity.INFO,
    message="`{subject}` is warmed up by only one call, on the default stream (line {warmed})",
    why="Libraries create handles and workspaces per stream, so this warm-up leaves them to the capture. The underlying call is {runtimes}.",
    fix="Warm up three times on a side stream, as torch's documentation does. rs.capture does this where the runtime needs it.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(issue("pytorch/pytorch#196397", "A hipBLASLt handle made during capture hangs."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures with exactly one earlier call, neither in a loop nor on a side stream."""
    for capture in captures(source):
        for name in dict.fromkeys(dotted_name(call.func) for call in capture.result_calls()):
            earlier = [
                s for s in calls_written_as(source, name) if s.scope is capture.scope and s.line < capture.site.line
            ]
            if (
                len(earlier) == 1
                and not _in_loop_or_stream(earlier[0])
                and not name.startswith(("torch.", "len", "print", "?"))
            ):
                yield match_at(capture.site, name, warmed=earlier[0].line, runtimes=describe_behavior("malloc"))
                break


def _in_loop_or_stream(call: Site) -> bool:
    for block in enclosing_blocks(call):
        if block.kind in ("for", "while") or block.captured:
            return True
        if any(mentions(item.context_expr, ("stream",)) for item in getattr(block.node, "items", ())):
            return True
    return False
