"""A slice whose length changes is passed to a replay.

## What it does
Reports `replay(x[:n])` in a loop that changes `n`.

## Why it matters
A graph works for one shape. `copy_` of a shorter tensor raises an error or, if it can be broadcast, silently fills the
buffer with repeated values.

## Example
    import torch

    for length in lengths:
        out = graph_wrapper.replay(tokens[:length])

## Use instead
    import torch

    for length in lengths:
        padded = torch.nn.functional.pad(tokens, (0, longest - tokens.shape[0]))
        out = graph_wrapper.replay(padded)

## When to allow it
When the length is the same every time.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch, walk
from rocsolid.rules.source.syntax import enclosing_blocks, literal, match_at, source_text

RULE = Rule(
    code="SRC209",
    name="variable-length-slice-in-replay",
    severity=Severity.WARNING,
    message="`{subject}` is passed to a replay, and its length changes with `{loop_variable}`",
    why="A graph works for one shape. Copying a shorter tensor raises an error, or silently broadcasts it.",
    fix="Pad to the captured shape, or capture one graph per length: rs.capture(buckets=...).",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#static-copy-hazards",
            "copy_ of shape (1, 3) into (4, 3) repeated the row; copy_ of (2, 3) into (4, 3) raised an error.",
        ),
        source_evidence("torch 2.13 Tensor.copy_", "The source is broadcast to the shape of the target."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Slices with a bound that changes in a loop, as an argument of `replay`."""
    if "replay" not in source.text:
        return
    for site in source.methods("replay"):
        loops = [b.node for b in enclosing_blocks(site) if b.kind == "for"]
        loop_variables = {n.id for loop in loops for n in walk(loop.target) if isinstance(n, ast.Name)}  # type: ignore[attr-defined]
        for value in site.call.args:
            if isinstance(value, ast.Subscript) and (name := _changing_name(value.slice, loop_variables)):
                yield match_at(site, source_text(value), loop_variable=name, underline=value)
                break


def _changing_name(index: ast.expr, loop_variables: set[str]) -> str:
    """The name in the bounds of a slice that the loop changes."""
    slices = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in slices:
        bounds = [part.lower, part.upper] if isinstance(part, ast.Slice) else []
        for bound in bounds:
            if bound is None or literal(bound) is not None:
                continue
            name = next((n.id for n in walk(bound) if isinstance(n, ast.Name) and n.id in loop_variables), "")
            if name:
                return name
    return ""
