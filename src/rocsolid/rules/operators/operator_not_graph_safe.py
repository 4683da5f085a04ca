"""An operator cannot be part of a device graph.

## What it does
Looks for what an operator says of itself: the tag `cudagraph_unsafe`, results whose shape or value depends on the data, results
that are no tensors. Where it was run with arguments on a device, it was also captured and replayed.

## Why it matters
A capture records addresses and launches. What has to know a value on the host, or allocates as it likes, breaks the capture or,
worse, replays something else.

## Example
    vendor::topk(Tensor x) -> (Tensor, int)        # the int has to be fetched from the device

## Use instead
    vendor::topk(Tensor x) -> (Tensor, Tensor)

## When to allow it
When the function is not captured, or the operator stands outside the captured part.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR003",
    name="operator-not-graph-safe",
    severity=Severity.WARNING,
    message="{subject} is not safe in a device graph: {reason}",
    why="A capture records launches and addresses; what waits for the device or decides by its data cannot be recorded.",
    fix="keep it outside the captured part, or use an operator that stays on the device",
    check="rs.audit_op({subject!r}, *arguments_on_the_device)",
    since="0.1",
)
