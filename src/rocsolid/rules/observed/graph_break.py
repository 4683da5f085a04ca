"""A graph break splits a compiled function into several graphs.

## What it does
Lists each place where Dynamo stopped tracing before the end of the function: the line, the cause, torch's id for that
kind of break, and a fix.

## Why it matters
Between two compiled graphs, Python runs again. Kernels are not fused across the break, the CPU has more to launch, and
a CUDA graph cannot contain the whole call. With `fullgraph=True`, a break is an error.

## Example
    scale = x.max().item()      # needs the value on the CPU, so the graph ends here
    return x / scale

## Use instead
    scale = x.max()             # stays a tensor
    return x / scale

## When to allow it
When it happens once, at the edge of a long function, or in code that runs rarely.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="BRK001",
    name="graph-break",
    severity=Severity.WARNING,
    message="Graph break in {function} at {location}: {reason} ({id} {kind})",
    why="{cost}",
    fix="{fix}",
    check="rocsolid breaks FILE.py:FUNCTION   (or compile with fullgraph=True)",
    since="0.1",
)
