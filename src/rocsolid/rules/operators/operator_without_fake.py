"""An operator says nothing about the shape of its result, so that no function that calls it can be compiled.

## What it does
Looks whether an operator has a fake: a kernel for tensors that have a shape and no data.

## Why it matters
Tracing runs every operator on such tensors. Without a fake the compile fails, or the graph breaks at every call.

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
    message="{subject} has no fake: {schema}",
    why="A function that calls it cannot be compiled: tracing has to know the shape of its result.",
    fix="torch.library.register_fake({subject!r}, lambda ...: torch.empty_like(...)), or wrap the function with rs.vendor_op",
    check="rs.audit_op({subject!r})",
    since="0.1",
)
