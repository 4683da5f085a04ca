"""Compiled code calls a function that is excluded from compiling.

## What it does
Reports functions with `@torch.compiler.disable` or `@torch._dynamo.disable` that a compiled function calls, directly or
through other functions.

## Why it matters
Every call is a graph break: the compiler ends one graph, runs the function in Python, and starts another graph. Kernels
are not fused across it, and with `fullgraph=True` the compile fails.

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
When you want the graph break, and the function is called at most once per step.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Region, Site, Source, SourceMatch
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC113",
    name="dynamo-disabled-in-compiled-region",
    severity=Severity.WARNING,
    message="Graph break in {where}: `{subject}` is excluded from compiling",
    why="Each call is a graph break. With fullgraph=True it is an error.",
    fix="Register it as an operator with rs.vendor_op or torch.library.custom_op, so that it stays in the graph.",
    check="TORCH_LOGS=graph_breaks python your_script.py",
    since="0.1",
    on_by_default=False,
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#graph-break-cases",
            "A call of a disabled function gave two graphs, and an error with fullgraph=True.",
        ),
        source_evidence("torch 2.13 _dynamo/decorators.py disable", "A call of a disabled function is a graph break."),
    ),
)
_DISABLE_DECORATORS = ("torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo")


def check(source: Source) -> Iterator[SourceMatch]:
    """Every function with such a decorator. The linter decides later whether compiled code calls it."""
    for scope in source.scopes.values():
        if any(d in _DISABLE_DECORATORS for d in scope.decorators):
            yield match_at(Site(scope.node, scope.name, scope, None), scope.name, region=Region.COMPILED)
