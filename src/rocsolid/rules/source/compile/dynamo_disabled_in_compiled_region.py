"""A function that is switched off for the compiler is called from code that is compiled.

## What it does
Reports functions under `@torch.compiler.disable` or `@torch._dynamo.disable` that a compiled function leads to.

## Why it matters
Every call breaks the graph in two: the compiler ends one graph, runs the function in Python, and begins another.
Launches that could have been fused are not, and with `fullgraph=True` the compile fails.

## Example
    import torch

    @torch.compiler.disable
    def attention(q, k, v):
        return vendor_attention(q, k, v)

    @torch.compile
    def block(q, k, v):
        return attention(q, k, v) + q

## Use instead
    import torch

    @torch.library.custom_op("mine::attention", mutates_args=())
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return vendor_attention(q, k, v)

    @torch.compile
    def block(q, k, v):
        return attention(q, k, v) + q

## When to allow it
When the break is wanted and the function is called once per step or less.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Site, Source, SourceMatch
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC113",
    name="dynamo-disabled-in-compiled-region",
    severity=Severity.WARNING,
    message="{subject} is switched off for the compiler and called from {where}",
    why="Each call breaks the graph in two, and fails under fullgraph=True.",
    fix="Register it as an operator (rs.vendor_op or torch.library.custom_op), so that it stays in the graph.",
    check="rocsolid explain SRC113",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#graph-break-cases",
            "A call under disable gave two graphs, and an error under fullgraph.",
        ),
        upstream("torch 2.13 _dynamo/decorators.py disable", "A call of a disabled function is a graph break."),
    ),
)
_DISABLING = ("torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo")


def check(source: Source) -> Iterator[SourceMatch]:
    """Every function so decorated; whether compiled code leads to it is for the project to say."""
    for scope in source.scopes.values():
        if any(d in _DISABLING for d in scope.decorators):
            yield match_at(Site(scope.node, scope.name, scope, None), scope.name, region=Region.COMPILED)
