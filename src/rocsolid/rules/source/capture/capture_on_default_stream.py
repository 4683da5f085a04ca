"""A graph is captured on the default stream.

## What it does
Reports `capture_begin()` outside `with torch.cuda.stream(...)`, and captures with `stream=torch.cuda.default_stream()`.

## Why it matters
The default stream synchronizes with all other streams and cannot be captured. The call raises an error, or the graph
also contains work of other libraries.

## Example
    import torch

    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    out = model(x)
    graph.capture_end()

## Use instead
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)

## When to allow it
When the caller of this function has already switched to another stream.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.captures import GRAPH_CONTEXTS
from rocsolid.rules.source.syntax import argument, calls_in, enclosing_blocks, match_at, mentions

RULE = Rule(
    code="SRC207",
    name="capture-on-default-stream",
    severity=Severity.CRITICAL,
    message="`{subject}` captures on {stream}",
    why="The default stream cannot be captured.",
    fix="Use `with torch.cuda.graph(graph):`, which creates its own stream, or enter `with torch.cuda.stream(...)` first.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "torch aten/src/ATen/cuda/CUDAGraph.cpp capture_begin",
            "Graphs must be captured on a stream that is not the default one.",
        ),
    ),
)
_DEFAULT_STREAM = "torch.cuda.default_stream"


def check(source: Source) -> Iterator[SourceMatch]:
    """`capture_begin()` without a side stream, and captures with the default stream."""
    if "capture_begin" not in source.text and "_stream" not in source.text:
        return
    for site in source.methods("capture_begin"):
        if (
            isinstance(site.call.func, ast.Attribute)
            and "graph" in site.name.lower()
            and not _on_side_stream(site)
            and not _manages_streams(source, site)
        ):
            yield match_at(
                site,
                site.name,
                stream="the current stream, which is usually the default stream",
            )
    for site in source.calls_to(*GRAPH_CONTEXTS):
        stream = argument(site.call, 2, "stream")
        if stream is not None and any(source.resolve(c.func) == _DEFAULT_STREAM for c in calls_in(stream)):
            yield match_at(site, site.name, stream="the default stream")


def _on_side_stream(site: Site) -> bool:
    for block in enclosing_blocks(site):
        for item in getattr(block.node, "items", ()):
            if mentions(item.context_expr, ("stream",)):
                return True
    return False


def _manages_streams(source: Source, site: Site) -> bool:
    """Whether the function, or its class, manages streams itself."""
    owner = site.scope.enclosing_class or site.scope
    names = ("set_stream", "stream_ctx", "__enter__")
    return any(s.scope.name.startswith(owner.name) for name in names for s in source.calls.get(name, ()))
