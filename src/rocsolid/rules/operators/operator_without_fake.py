"""An operator has no fake implementation, so functions that call it cannot be compiled.

## What it does
Checks whether the operator has a fake implementation: a function that returns the shape, strides and dtype of the
result without computing it.

## Why it matters
Tracing runs every operator on tensors without data. Without a fake implementation the compile fails, or the graph
breaks at every call.

## Example
    @torch.library.custom_op("vendor::kernel", mutates_args=())
    def kernel(x: torch.Tensor) -> torch.Tensor: ...

## Use instead
    @torch.library.register_fake("vendor::kernel")
    def _(x): return torch.empty_like(x)

## When to allow it
When the operator is never called in compiled code.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR001",
    name="operator-without-fake",
    severity=Severity.CRITICAL,
    message="Operator `{subject}` has no fake implementation",
    why="torch.compile must know the shape of its result to trace a function that calls it. The schema is {schema}.",
    fix="torch.library.register_fake({subject!r}, lambda ...: torch.empty_like(...))   (or wrap the function with rs.vendor_op)",
    check="rs.audit_op({subject!r})",
    since="0.1",
)
