"""A kernel divides one `exp` by another, as in tanh or sigmoid, which gives NaN for large inputs.

## What it does
Reports a division in a kernel with an unbounded `exp` in both the numerator and the denominator.

## Why it matters
For large inputs both become infinite, and infinity divided by infinity is NaN. One such element can turn the whole
output of a layer into NaN.

## Example
    import triton
    import triton.language as tl

    @triton.jit
    def tanh(x, out):
        v = tl.load(x)
        e = tl.exp(2 * v)
        tl.store(out, (e - 1) / (e + 1))

## Use instead
    import triton
    import triton.language as tl

    @triton.jit
    def tanh(x, out):
        v = tl.load(x)
        tl.store(out, 1 - 2 / (tl.exp(2 * v) + 1))

## When to allow it
When the input is always small.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Scope, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import match_at, site_of, source_text
from rocsolid.rules.source.triton import TL, kernels

RULE = Rule(
    code="SRC304",
    name="exp-overflow-in-division",
    severity=Severity.WARNING,
    message="`{subject}` divides one exp by another",
    why="For large inputs this is infinity divided by infinity, which is NaN.",
    fix="Write tanh as 1 - 2 / (exp(2x) + 1), sigmoid as 1 / (1 + exp(-x)), or clamp the input first.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("IEEE 754", "Infinity divided by infinity is not a number."),),
)
EXPS = frozenset({f"{TL}exp", f"{TL}math.exp", f"{TL}exp2", "triton.language.extra.libdevice.exp"})
_LIMITING_WORDS = ("clamp", "minimum", "maximum", "abs", "max", "min", "where")


def check(source: Source) -> Iterator[SourceMatch]:
    """Divisions in kernels, also by names that an earlier line assigned from `exp`."""
    if "exp" not in source.text:
        return
    for kernel in kernels(source):
        arguments = _exp_arguments(source, kernel)
        for node in walk(kernel.node):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                numerator, denominator = _exps(node.left, arguments, source), _exps(node.right, arguments, source)
                if numerator & denominator and not _contains_sum(node.right, source):
                    yield match_at(site_of(source, node), source_text(node))


def _exp_arguments(source: Source, kernel: Scope) -> dict[str, str]:
    """Names assigned from an unbounded `exp`, with its argument."""
    found: dict[str, str] = {}
    for assignment in source.assignments:
        if (
            assignment.scope is kernel
            and isinstance(assignment.value, ast.Call)
            and source.resolve(assignment.value.func) in EXPS
        ):
            if assignment.value.args and not is_bounded(assignment.value.args[0], source, kernel):
                found[assignment.name] = ast.unparse(assignment.value.args[0])
            else:
                found.pop(assignment.name, None)
    return found


def _exps(node: ast.AST, arguments: dict[str, str], source: Source) -> set[str]:
    """The unbounded arguments of `exp` in an expression."""
    exponents = {arguments[n.id] for n in walk(node) if isinstance(n, ast.Name) and n.id in arguments}
    for call in walk(node):
        if isinstance(call, ast.Call) and source.resolve(call.func) in EXPS and call.args:
            text = ast.unparse(call.args[0])
            if not any(word in text for word in _LIMITING_WORDS) and not text.startswith("-"):
                exponents.add(text)
    return exponents


def is_bounded(argument: ast.expr, source: Source, kernel: Scope) -> bool:
    """Whether the argument is limited by a clamp or a subtraction, here or in the line that assigned it."""
    if isinstance(argument, ast.UnaryOp) or _limits_value(argument):
        return True
    names = {n.id for n in walk(argument) if isinstance(n, ast.Name)}
    values = [
        assignment.value
        for assignment in source.assignments
        if assignment.scope is kernel and assignment.name in names and assignment.value is not None
    ]
    return any(_limits_value(value) for value in values)


def _limits_value(node: ast.expr) -> bool:
    if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub) for n in walk(node)):
        return True
    return any(word in ast.unparse(node) for word in _LIMITING_WORDS)


def _contains_sum(node: ast.AST, source: Source) -> bool:
    """Whether this is a softmax, which divides by a sum. Another rule checks that."""
    return any(isinstance(c, ast.Call) and source.resolve(c.func) == f"{TL}sum" for c in walk(node))
