"""Several graphs are replayed one right after the other.

## What it does
Reports two consecutive `replay()` calls of different graphs.

## Why it matters
Each replay is a separate launch, and the GPU is idle between two launches. One graph for the whole call needs one
launch, and its memory is planned once.

## Example
    import torch

    encoder_graph.replay()
    decoder_graph.replay()

## Use instead
    import torch

    with torch.cuda.graph(graph):
        out = decoder(encoder(x))

    graph.replay()

## When to allow it
When the parts are also replayed separately, or the CPU must do something in between.
"""

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch, walk
from rocsolid.rules.source.captures import replays
from rocsolid.rules.source.syntax import match_at, site_of

RULE = Rule(
    code="SRC211",
    name="many-small-graphs",
    severity=Severity.INFO,
    message="`{subject}` are replayed one right after the other",
    why="Each replay is a separate launch. One graph for both needs one launch and plans its memory once.",
    fix="Capture the whole call in one graph.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(source_evidence("torch 2.13 cuda/graphs.py CUDAGraph.replay", "Every replay is one launch of a graph."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Consecutive statements that replay different graphs."""
    if len({ast.unparse(site.call.func) for site in replays(source)}) < 2:  # noqa: PLR2004 - a pair
        return
    for node in walk(source.tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                yield from _consecutive_replays(body, source)


def _consecutive_replays(body: Sequence[ast.stmt], source: Source) -> Iterator[SourceMatch]:
    for statement, next_statement in pairwise(body):
        first, second = _replayed_graph(statement), _replayed_graph(next_statement)
        if first and second and first != second:
            yield match_at(site_of(source, next_statement), f"{first}` and `{second}")


def _replayed_graph(statement: ast.stmt) -> str:
    """The graph that the statement replays; empty if it replays none."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return ""
    func = statement.value.func
    if isinstance(func, ast.Attribute) and func.attr == "replay" and not statement.value.args:
        return ast.unparse(func.value)
    return ""
