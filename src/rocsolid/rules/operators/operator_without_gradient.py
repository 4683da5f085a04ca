"""An operator has no gradient.

## What it does
Checks whether the operator has an autograd implementation.

## Why it matters
Its result has `requires_grad=False` without a warning, so earlier layers get no gradient; or the backward pass fails. For inference this does not matter.

## Example
    torch.library.custom_op("vendor::norm", ...)             # no register_autograd

## Use instead
    rs.vendor_op("mine::norm", vendor.norm, reference=plain)   # uses the gradient of the reference

## When to allow it
When the operator is used for inference only.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR004",
    name="operator-without-gradient",
    severity=Severity.INFO,
    message="Operator `{subject}` has no gradient",
    why="Training through it fails, or silently computes no gradient. For inference this does not matter.",
    fix="torch.library.register_autograd({subject!r}, backward, setup_context=...)   (or rs.vendor_op with a reference)",
    check="rs.audit_op({subject!r})",
    since="0.1",
)
