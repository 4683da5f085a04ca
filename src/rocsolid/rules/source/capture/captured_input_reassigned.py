"""A graph's input is given a new tensor instead of new values.

## What it does
Reports an assignment to a name that a capture read, just before a `replay()` in the same function.

## Why it matters
The graph reads the address it was captured with. An assignment makes the name stand for another tensor; the graph goes on
reading the old one, with the old values.

## Example
    import torch

    with torch.cuda.graph(graph):
        out = model(static_input)

    static_input = next_batch
    graph.replay()

## Use instead
    import torch

    with torch.cuda.graph(graph):
        out = model(static_input)

    static_input.copy_(next_batch)
    graph.replay()

## When to allow it
When the graph is captured anew before the replay.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Source, SourceMatch
from rocsolid.rules.source.captures import Capture, captures, replays
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC215",
    name="captured-input-reassigned",
    severity=Severity.CRITICAL,
    message="{subject} is given another tensor, and {graph} reads the one it was captured with",
    why="The replay works on the old values.",
    fix="Assignment the new values into the same memory: {subject}.copy_(...).",
    check="rocsolid explain SRC215",
    since="0.1",
    evidence=(upstream("torch 2.13 cuda/graphs.py", "A graph replays on the addresses it was captured with."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments between a capture that reads the name and a replay of that graph."""
    if "replay" not in source.text:
        return
    played = list(replays(source))
    for capture in captures(source):
        if not capture.graph:
            continue
        read = {
            ast.unparse(a) for call in capture.calls() for a in call.args if isinstance(a, (ast.Name, ast.Attribute))
        }
        again = [s for s in played if s.name.removesuffix(".replay") == capture.graph]
        for write in source.assignments if again else ():
            text = ast.unparse(write.target)
            if text not in read or isinstance(write.node, ast.AugAssign) or not _same_name(write, capture, text):
                continue
            if any(s.scope is write.scope and write.line < s.line and s.block is write.block for s in again):
                yield match_at(write, text, graph=capture.graph)


def _same_name(write: Assignment, capture: Capture, text: str) -> bool:
    """Whether the two see the same variable: in one function, below the capture, or as an attribute of one object."""
    if write.scope is capture.scope:
        return write.line > capture.site.line
    owner = capture.scope.enclosing_class
    return text.startswith("self.") and owner is not None and write.scope.enclosing_class is owner
