"""An operator declares that it writes to arguments that it only reads.

## What it does
Looks at the arguments that an operator's schema marks as written: whether all of its tensors are, and, where it was run with real
arguments, whether they changed.

## Why it matters
The compiler copies what is written to and used again, keeps the operator in its place, and Inductor leaves graphs with written
inputs out of its device graphs. A schema made with "unknown" mutation marks everything.

## Example
    vendor::mha_fwd(Tensor(a0!) q, Tensor(a1!) k, Tensor(a2!) v) -> Tensor

## Use instead
    attention = rs.vendor_op("mine::attention", vendor.mha_fwd, fake=..., reference=...)

## When to allow it
When the operator does write to all of them.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR002",
    name="operator-declares-unneeded-mutation",
    severity=Severity.WARNING,
    message="{subject} declares that it writes to {arguments}{how}",
    why="What is written to is copied, cannot be moved or fused, and can keep Inductor from capturing the graph.",
    fix="register it again under a name of yours, with what it truly writes to: rs.vendor_op('mine::{short}', fn, mutates=(...), ...)",
    check="rs.audit_op({subject!r})",
    since="0.1",
)
