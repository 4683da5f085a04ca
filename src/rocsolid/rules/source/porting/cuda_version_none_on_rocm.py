"""Code uses `torch.version.cuda` as text, but it is None in ROCm builds.

## What it does
Reports method calls on `torch.version.cuda`, comparisons with `<` and `>`, and conversions to a version or number, unless a check
for None or for the vendor comes first.

## Why it matters
`torch.cuda.is_available()` is true on ROCm too, so code that looks guarded still runs there, and raises AttributeError or
TypeError.

## Example
    import torch

    if torch.cuda.is_available() and torch.version.cuda.startswith("12.9"):
        print("this CUDA release has a slow kernel")

## Use instead
    import torch

    if torch.version.cuda is not None and torch.version.cuda.startswith("12.9"):
        print("this CUDA release has a slow kernel")

## When to allow it
When the code runs only with CUDA builds.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.syntax import condition_of, handles_errors, source_text
from rocsolid.rules.source.vendors import checks_vendor, match_on_rocm

RULE = Rule(
    code="SRC406",
    name="cuda-version-none-on-rocm",
    severity=Severity.WARNING,
    message="`{subject}` fails on ROCm: torch.version.cuda is None there",
    why="In ROCm builds, torch.version.hip has the version and torch.version.cuda is None, while torch.cuda.is_available() is true.",
    fix="Check it first: torch.version.cuda is not None and ...",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence("torch 2.13 version.py", "A build has either cuda or hip; the other one is None."),
        issue("pytorch/ao#4640", "A warning about CUDA 12.9 crashed on ROCm."),
    ),
)
_NAME = "torch.version.cuda"
_CONVERSIONS = frozenset({"Version", "parse", "LooseVersion", "int", "float"})
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every such use in a condition, a returned or assigned value, or a statement that is a call."""
    if "version.cuda" not in source.text:
        return
    lines = [number for number, line in enumerate(source.text.split("\n"), 1) if "version.cuda" in line]
    reported: set[tuple[int, int]] = set()
    for site in _expressions(source):
        if not any(site.node.lineno <= line <= (site.node.end_lineno or 0) for line in lines):  # type: ignore[attr-defined]
            continue
        for node in _unchecked_uses(site.node, source):
            place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
            if place not in reported and not handles_errors(site):
                reported.add(place)
                yield from match_on_rocm(Site(node, "", site.scope, site.block), source, source_text(node))


def _expressions(source: Source) -> Iterator[Site]:
    for site in source.conditions:
        block = site.block
        if block is not None and condition_of(block) is site.node:  # `a and b`: the second half counts as inside
            block = block.parent
        yield Site(site.node, "", site.scope, block)
    yield from source.returns
    statements = set(map(id, source.statements))
    yield from (site for sites in source.calls.values() for site in sites if id(site.node) in statements)
    for assignment in source.assignments:
        if assignment.value is not None:
            yield Site(assignment.value, "", assignment.scope, assignment.block)


def _unchecked_uses(node: ast.AST, source: Source) -> Iterator[ast.AST]:
    """The uses as text in an expression, without those behind an `and`, `or` or `if` that checks the vendor."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _unchecked_uses(value, source)
            if checks_vendor(value, source):
                return
        return
    if isinstance(node, ast.IfExp) and checks_vendor(node.test, source):
        yield from _unchecked_uses(node.test, source)
        return
    if _uses_as_text(node, source):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _unchecked_uses(child, source)


def _uses_as_text(node: ast.AST, source: Source) -> bool:
    def is_version(part: ast.AST) -> bool:
        return isinstance(part, ast.Attribute) and source.resolve(part) == _NAME

    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and is_version(node.func.value):
            return True
        name = source.resolve(node.func).rpartition(".")[2]
        return name in _CONVERSIONS and any(is_version(argument) for argument in node.args)
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDER) and is_version(node.left)
