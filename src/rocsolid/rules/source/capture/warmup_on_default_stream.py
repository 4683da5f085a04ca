"""The only warm-up before a capture is one call on the default stream.

## What it does
Reports a capture if the captured function is called exactly once before it in the same Python function, neither in a
loop nor under `with torch.cuda.stream(...)`.

## Why it matters
Libraries create a handle and a workspace for each stream when the stream first uses them, and some choose a kernel only
after several calls. The capture uses another stream than this warm-up, so that work happens inside the capture, where
it can fail. PyTorch's documentation therefore recommends several warm-up calls on a side stream.

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
When the captured function calls no library that creates handles or workspaces for each stream.
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
    message="The only warm-up of `{subject}` is one call on the default stream (line {warmup_line})",
    why="Libraries create handles and workspaces for each stream. The capture uses another stream, so they are created inside the capture. The underlying call is {runtime_call_and_its_behavior}.",
    fix="Call it three times on a side stream before the capture, as PyTorch's documentation recommends. rs.capture does this where the runtime needs it.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(issue("pytorch/pytorch#196397", "Creating a hipBLASLt handle during a capture hangs."),),
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
                yield match_at(
                    capture.site,
                    name,
                    warmup_line=earlier[0].line,
                    runtime_call_and_its_behavior=describe_behavior("malloc"),
                )
                break


def _in_loop_or_stream(call: Site) -> bool:
    for block in enclosing_blocks(call):
        if block.kind in ("for", "while") or block.captured:
            return True
        if any(mentions(item.context_expr, ("stream",)) for item in getattr(block.node, "items", ())):
            return True
    return False
