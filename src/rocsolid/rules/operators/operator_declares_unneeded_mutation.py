"""An operator's schema marks arguments as written that the operator only reads.

## What it does
Checks the arguments that the schema marks as written: whether that is all of its tensors and, if the operator was run
with real arguments, whether they changed.

## Why it matters
The compiler copies written tensors that are used again and does not move the operator. Inductor does not capture graphs
with written inputs. A schema created with "unknown" mutation marks every tensor.

## Example
    vendor::mha_fwd(Tensor(a0!) q, Tensor(a1!) k, Tensor(a2!) v) -> Tensor

## Use instead
    attention = rs.vendor_op("mine::attention", vendor.mha_fwd, fake=..., reference=...)

## When to allow it
When the operator really writes to all of them.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR002",
    name="operator-declares-unneeded-mutation",
    severity=Severity.WARNING,
    message="Operator `{subject}` declares that it writes to {arguments}{how}",
    why="Written tensors are copied, the operator cannot be moved or fused, and Inductor may not capture the graph.",
    fix="Register it under your own name with its real mutations: rs.vendor_op('mine::{short}', fn, mutates=(...), ...)",
    check="rs.audit_op({subject!r})",
    since="0.1",
)
