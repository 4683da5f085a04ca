"""A compiled function falls into several graphs.

## What it does
Tells each place where Dynamo had to end a graph before the function ended: the line, the cause, torch's own id for it, and what
to write instead.

## Why it matters
Between two graphs Python runs again. Nothing is fused across the break, the host has to keep up with the device once more, and a
device graph cannot hold the whole call. `fullgraph=True` makes it an error.

## Example
    scale = x.max().item()      # waits for the device, and ends the graph
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
    message="{function} breaks its graph at {place}: {reason} ({id} {kind})",
    why="{cost}",
    fix="{fix}",
    check="run rocsolid breaks again, or compile with fullgraph=True",
    since="0.1",
)
