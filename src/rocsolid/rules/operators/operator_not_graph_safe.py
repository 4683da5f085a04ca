"""An operator cannot be part of a CUDA graph or HIP graph.

## What it does
Looks for the tag `cudagraph_unsafe`, for results whose shape or value depends on the data, and for results that are not
tensors. If the operator was run with arguments on a GPU, it was also captured and replayed.

## Why it matters
A capture records kernel launches and addresses. An operator that needs a value on the CPU, or allocates memory freely,
makes the capture fail or the replay return wrong results.

## Example
    vendor::topk(Tensor x) -> (Tensor, int)        # the int must be copied from the GPU

## Use instead
    vendor::topk(Tensor x) -> (Tensor, Tensor)

## When to allow it
When the function is not captured, or the operator runs outside the captured part.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR003",
    name="operator-not-graph-safe",
    severity=Severity.WARNING,
    message="Operator `{subject}` is not safe in a graph: {reason}",
    why="A capture records launches and addresses. It cannot record waiting for the GPU or decisions that depend on data.",
    fix="Keep it outside the captured part, or use an operator that stays on the GPU.",
    check="rs.audit_op({subject!r}, *arguments_on_the_gpu)",
    since="0.1",
)
