"""A captured output is cloned as if it were always a single tensor.

## What it does
Reports `static_output.clone()` after a replay, if `static_output` is the result of a call in the capture.

## Why it matters
A model may return a tuple, a dict or a dataclass. These have no `clone` method, so the code fails for such models.

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
When the captured function always returns one tensor.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import captures
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC214",
    name="graph-output-clone-assumes-tensor",
    severity=Severity.INFO,
    message="`{subject}.clone()` works only if the captured function returns one tensor",
    why="A tuple, a dict or a dataclass has no clone method.",
    fix="Clone each tensor: torch.utils._pytree.tree_map(torch.clone, {subject}). rs.capture does this.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        measured("compiler-facts-torch-2.13-cpu#static-copy-hazards", "A tuple has no clone."),
        source_evidence("torch 2.13 Tensor.clone", "A method of tensors only."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Clones of names that a capture assigned from a call."""
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
