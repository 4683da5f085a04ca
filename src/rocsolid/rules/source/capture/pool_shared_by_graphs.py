"""Several graphs share one memory pool.

## What it does
Reports the second and later captures in a function with the same `pool=`, and a single capture with `pool=` inside a loop.

## Why it matters
Graphs of one pool may use each other's memory. That is safe only if they are replayed in the order of their capture,
one after the other, and no output of an earlier graph is kept. Otherwise they overwrite each other's results.

## Example
    import torch

    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.graph(first, pool=pool):
        a = encoder(x)
    with torch.cuda.graph(second, pool=pool):
        b = decoder(y)

## Use instead
    import torch

    with torch.cuda.graph(first):
        a = encoder(x)
    with torch.cuda.graph(second):
        b = decoder(y)

## When to allow it
When the graphs are always replayed in the order of their capture and no output is used after the next replay.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import captures
from rocsolid.rules.source.syntax import enclosing_blocks, match_at

RULE = Rule(
    code="SRC210",
    name="pool-shared-by-graphs",
    severity=Severity.WARNING,
    message="This capture shares the pool `{subject}` with {other_captures}",
    why="Graphs of one pool must be replayed in the order of their capture, and no output of an earlier graph may be kept.",
    fix="Give each graph its own pool, or replay in that order. rs.capture(pool=...) enforces the order.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        source_evidence(
            "torch 2.13 include/ATen/cuda/CUDAGraph.h replay",
            "Sharing is safe if graphs replay in the order of their capture.",
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures in one function with the same pool, and such a capture in a loop."""
    with_pool = [capture for capture in captures(source) if capture.pool and capture.pool != "None"]
    for index, capture in enumerate(with_pool):
        earlier = next((c for c in with_pool[:index] if c.pool == capture.pool and c.scope is capture.scope), None)
        if earlier is not None:
            if not _are_exclusive(earlier.site.block, capture.site.block):
                yield match_at(capture.site, capture.pool, other_captures=f"the capture in line {earlier.site.line}")
        elif any(b.kind == "for" for b in enclosing_blocks(capture.site)):
            yield match_at(capture.site, capture.pool, other_captures="the captures of other loop iterations")


def _are_exclusive(first: object, second: object) -> bool:
    """Whether the two blocks are in different branches of one `if`."""
    branches = {}
    for block in getattr(first, "self_and_parents", tuple)():
        branches[id(block.node)] = block.branch
    return any(branches.get(id(b.node), b.branch) != b.branch for b in getattr(second, "self_and_parents", tuple)())
