"""A captured output is cloned as if it were one tensor.

## What it does
Reports `static_output.clone()` after a replay, where the output is whatever a model returned.

## Why it matters
A model may return a tuple, a dict or a dataclass; those have no `clone`, and the wrapper fails for them.

## Example
    import torch

    with torch.cuda.graph(graph):
        static_output = model(static_input)

    def step():
        graph.replay()
        return static_output.clone()

## Use instead
    import torch
    from torch.utils._pytree import tree_map

    with torch.cuda.graph(graph):
        static_output = model(static_input)

    def step():
        graph.replay()
        return tree_map(torch.clone, static_output)

## When to allow it
When the captured function is known to return one tensor.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import captures
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC214",
    name="graph-output-clone-assumes-tensor",
    severity=Severity.INFO,
    message="{subject} is cloned as one tensor, and it is whatever the captured function returned",
    why="A tuple, a dict or a dataclass has no clone.",
    fix="Clone each tensor of the result; rs.capture does.",
    check="rocsolid explain SRC214",
    since="0.1",
    evidence=(
        measured("compiler-facts-torch-2.13-cpu#static-copy-hazards", "A tuple has no clone."),
        upstream("torch 2.13 Tensor.clone", "A method of tensors only."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Clones of names that a capture bound to the result of a call."""
    if "replay" not in source.text or "clone" not in source.text:
        return
    outputs = {
        ast.unparse(target)
        for capture in captures(source)
        for statement in capture.node.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)
        for target in statement.targets
    }
    for site in source.methods("clone"):
        func = site.call.func
        name = ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""
        if name in outputs:
            yield match_at(site, name, uncertain=True)
