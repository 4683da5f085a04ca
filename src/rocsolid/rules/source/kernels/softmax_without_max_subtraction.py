"""A softmax in a kernel does not subtract the maximum.

## What it does
Reports `e = tl.exp(x)` divided by `tl.sum(e)` when nothing was subtracted from `x`.

## Why it matters
In float32, `exp` of a number above 88 is infinite. One large score turns the whole row into NaN.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def softmax(x, out):
        row = tl.load(x)
        e = tl.exp(row)
        tl.store(out, e / tl.sum(e, axis=0))

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def softmax(x, out):
        row = tl.load(x)
        e = tl.exp(row - tl.max(row, axis=0))
        tl.store(out, e / tl.sum(e, axis=0))

## When to allow it
When the scores are bounded, for example by a soft cap.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch, walk
from rocsolid.rules.source.kernels.exp_overflow_in_division import EXPS, is_bounded
from rocsolid.rules.source.syntax import match_at, site_of
from rocsolid.rules.source.triton import TL, kernels

RULE = Rule(
    code="SRC305",
    name="softmax-without-max-subtraction",
    severity=Severity.WARNING,
    message="Softmax of `{subject}` does not subtract the maximum before exp",
    why="In float32, exp of a number above 88 is infinite, and one such score turns the row into NaN.",
    fix="Subtract the maximum first: tl.exp(x - tl.max(x, axis)).",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("IEEE 754", "exp overflows float32 above 88.7."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Names assigned from an unbounded `exp` that are divided by the sum of themselves."""
    if "exp" not in source.text:
        return
    for kernel in kernels(source):
        assigned = [
            (assignment.name, assignment.value) for assignment in source.assignments if assignment.scope is kernel
        ]
        calls = {name: call for name, call in assigned if isinstance(call, ast.Call) and call.args}
        exps = {
            n for n, c in calls.items() if source.resolve(c.func) in EXPS and not is_bounded(c.args[0], source, kernel)
        }
        sums = {n: ast.unparse(c.args[0]) for n, c in calls.items() if source.resolve(c.func) == f"{TL}sum"}
        for node in walk(kernel.node):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.left, ast.Name):
                name = node.left.id
                if name in exps and _is_sum_of(node.right, name, sums, source):
                    yield match_at(site_of(source, node), name)


def _is_sum_of(node: ast.expr, name: str, sums: dict[str, str], source: Source) -> bool:
    if isinstance(node, ast.Name):
        return sums.get(node.id) == name
    return (
        isinstance(node, ast.Call)
        and source.resolve(node.func) == f"{TL}sum"
        and bool(node.args)
        and ast.unparse(node.args[0]) == name
    )
