"""An operator's schema declares that it writes to arguments that it only reads.

## What it does
Looks at the arguments that the schema marks as written, such as `Tensor(a0!)`. Reports them if every tensor argument is
marked. If the operator was run with real arguments, reports only the marked arguments that did not change.

## Why it matters
If a tensor is marked as written, the compiler copies it when it is used again later, and does not reorder or fuse the
operator. Inductor does not capture a graph whose inputs are written to. If an operator is registered with
`mutates_args="unknown"`, its schema marks every tensor.

## Example
    vendor::mha_fwd(Tensor(a0!) q, Tensor(a1!) k, Tensor(a2!) v) -> Tensor

## Use instead
    attention = rs.vendor_op("mine::attention", vendor.mha_fwd, fake=..., reference=...)

## When to allow it
When the operator really writes to these arguments.
"""

from rocsolid.model.finding import Rule, Severity

RULE = Rule(
    code="OPR002",
    name="operator-declares-false-mutation",
    severity=Severity.WARNING,
    message="Operator `{subject}` declares that it writes to {arguments}{how}",
    why="The compiler copies tensors that are marked as written and does not reorder or fuse the operator. It can also prevent Inductor from capturing the graph.",
    fix="Register it under your own name and declare only what it really writes: rs.vendor_op('mine::{short}', fn, mutates=(...), ...)",
    check="rs.audit_op({subject!r})",
    since="0.1",
)
