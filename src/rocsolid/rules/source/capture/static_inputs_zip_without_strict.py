"""A loop over `zip` without `strict=True` copies new inputs into a graph's static inputs.

## What it does
Reports `for static, new in zip(...): static.copy_(new)` without `strict=True`.

## Why it matters
If there are fewer new inputs than static inputs, the remaining static inputs keep the values of the last call. The
graph replays with stale data, without an error.

## Example
    for static, new in zip(static_inputs, inputs):
        static.copy_(new)
    graph.replay()

## Use instead
    for static, new in zip(static_inputs, inputs, strict=True):
        static.copy_(new)
    graph.replay()

## When to allow it
When the code compares the lengths before the loop.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Autofix, Rule, Severity
from rocsolid.model.source import Edit, Source, SourceMatch, walk
from rocsolid.rules.source.captures import replays
from rocsolid.rules.source.syntax import keyword, match_at, source_text

RULE = Rule(
    code="SRC212",
    name="static-inputs-zip-without-strict",
    severity=Severity.WARNING,
    message="`{subject}` silently stops at the shorter list",
    why="With fewer new inputs, the remaining static inputs keep old values, and the graph replays with them.",
    fix="Write zip(..., strict=True), and check shapes too, because copy_ broadcasts.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    autofix=Autofix.SAFE,
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#static-copy-hazards",
            "A zip over too few inputs left the last buffer unchanged.",
        ),
        source_evidence("Python 3.10 zip", "Without strict=True zip stops at the shortest input."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Loops over a `zip` whose body copies one item into the other, in functions that replay a graph."""
    if "zip(" not in source.text or not any(replays(source)):
        return
    replaying = {site.scope for site in replays(source)}
    for site in source.calls_to("zip"):
        if site.scope not in replaying:
            continue
        if keyword(site.call, "strict") is not None or len(site.call.args) < 2:  # noqa: PLR2004 - a pair
            continue
        loop = next((s.node for s in source.loops if isinstance(s.node, ast.For) and s.node.iter is site.call), None)
        if isinstance(loop, ast.For) and _copies(loop) and not _compares_lengths(site.scope.node):
            yield match_at(site, source_text(site.node), edit=Edit(kind="keyword", text="strict=True"))


def _copies(loop: ast.For) -> bool:
    names = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}
    for node in walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy_":
            used = {n.id for n in walk(node) if isinstance(n, ast.Name)}
            if len(used & names) > 1:
                return True
    return False


def _compares_lengths(function: ast.AST) -> bool:
    """Whether the same function compares lengths."""
    for node in walk(function):
        if isinstance(node, ast.Compare):
            calls = [n for n in walk(node) if isinstance(n, ast.Call)]
            if sum(isinstance(c.func, ast.Name) and c.func.id == "len" for c in calls) > 1:
                return True
    return False
