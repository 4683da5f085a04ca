"""A graph's input gets a new tensor instead of new values.

## What it does
Reports an assignment to a variable that was an input of a capture, if `replay()` of that graph follows.

## Why it matters
The graph reads from the address it was captured with. After the assignment, the variable refers to another tensor, but
the graph still reads the old tensor with the old values.

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
When the graph is captured again before the replay.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Source, SourceMatch, walk
from rocsolid.rules.source.captures import Capture, captures, replays
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC215",
    name="captured-input-reassigned",
    severity=Severity.CRITICAL,
    message="`{subject}` is assigned a new tensor, but `{graph}` still reads the old one",
    why="The replay uses the old values, because the graph keeps the address it was captured with.",
    fix="Copy the new values into the same memory: {subject}.copy_(...)",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("torch 2.13 cuda/graphs.py", "A graph replays on the addresses it was captured with."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments between a capture that reads the variable and a replay of that graph."""
    if "replay" not in source.text:
        return
    all_replays = list(replays(source))
    for capture in captures(source):
        if not capture.graph:
            continue
        captured_inputs = {
            ast.unparse(a) for call in capture.calls() for a in call.args if isinstance(a, (ast.Name, ast.Attribute))
        }
        graph_replays = [s for s in all_replays if s.name.removesuffix(".replay") == capture.graph]
        for assignment in source.assignments if graph_replays else ():
            text = ast.unparse(assignment.target)
            if (
                text not in captured_inputs
                or isinstance(assignment.node, ast.AugAssign)
                or not _is_same_variable(assignment, capture, text)
            ):
                continue
            following = [
                s
                for s in graph_replays
                if s.scope is assignment.scope and assignment.line < s.line and s.block is assignment.block
            ]
            if following and not _buffer_is_filled(source, assignment, capture, text, following[0].line):
                yield match_at(assignment, text, graph=capture.graph)


def _is_same_variable(assignment: Assignment, capture: Capture, text: str) -> bool:
    """Whether both refer to the same variable: in one function after the capture, or an attribute of one object."""
    if assignment.scope is capture.scope:
        return assignment.line > capture.site.line
    owner = capture.scope.enclosing_class
    return text.startswith("self.") and owner is not None and assignment.scope.enclosing_class is owner


def _buffer_is_filled(source: Source, assignment: Assignment, capture: Capture, text: str, replay_line: int) -> bool:
    """Whether the captured tensor was a view of a buffer into which new values are copied before the replay."""
    earlier = [
        getattr(other.node, "value", None)
        for other in source.assignments
        if other.scope is assignment.scope and other.line < capture.site.line and ast.unparse(other.target) == text
    ]
    buffers = _names(earlier[-1]) if earlier else set()
    return any(
        assignment.line < site.line < replay_line
        and isinstance(site.call.func, ast.Attribute)
        and not buffers.isdisjoint(_names(site.call.func.value))
        for site in source.methods("copy_")
    )


def _names(node: ast.AST | None) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)} if node is not None else set()
