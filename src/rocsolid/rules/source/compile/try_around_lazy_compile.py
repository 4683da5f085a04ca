"""A `try` around `torch.compile` does not catch compile errors.

## What it does
Reports `try: model = torch.compile(model)` with an exception handler, if the `try` block does not call the result.

## Why it matters
`torch.compile` returns immediately and compiles at the first call. If compiling fails, the error is raised there,
outside the `try`, and the `except` block never runs.

## Example
    import torch

    try:
        model = torch.compile(model)
    except Exception:
        print("compile failed, going on without it")

    out = model(x)

## Use instead
    import torch

    compiled = torch.compile(model)
    try:
        compiled(example)
        model = compiled
    except Exception:
        print("compile failed, going on without it")

    out = model(x)

## When to allow it
When the `except` block is for a torch version without `torch.compile`.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch, walk
from rocsolid.rules.source.settings import compile_calls
from rocsolid.rules.source.syntax import enclosing_blocks, match_at

RULE = Rule(
    code="SRC122",
    name="try-around-lazy-compile",
    severity=Severity.WARNING,
    message="This `try` does not catch compile errors: torch.compile compiles at the first call",
    why="torch.compile returns immediately. A compile error is raised at the first call, which is outside the try block.",
    fix="Call the compiled function once inside the try block: compiled = torch.compile(model); compiled(example)",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(issue("ScrollPrize/villa#1703", "The except block around torch.compile never ran."),),
)
_BROAD_ERRORS = frozenset({"Exception", "BaseException", "RuntimeError"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments of a compiled function in a `try` with a broad handler that does not call it."""
    for site in compile_calls(source):
        block = next(iter(enclosing_blocks(site)), None)
        if block is None or block.kind != "try" or block.branch != "body" or not site.call.args:
            continue
        try_statement = block.node
        if not isinstance(try_statement, ast.Try) or not _catches_broadly(try_statement, source):
            continue
        name = _assigned_name(try_statement, site.call)
        if name and not any(_uses(statement, name) for statement in try_statement.body):
            yield match_at(site, "torch.compile")


def _catches_broadly(try_statement: ast.Try, source: Source) -> bool:
    return any(h.type is None or source.resolve(h.type) in _BROAD_ERRORS for h in try_statement.handlers)


def _assigned_name(try_statement: ast.Try, call: ast.Call) -> str:
    """The name that the result of the call is assigned to; empty if there is none."""
    for statement in try_statement.body:
        if isinstance(statement, ast.Assign) and statement.value is call:
            return ast.unparse(statement.targets[0])
    return ""


def _uses(statement: ast.stmt, name: str) -> bool:
    """Whether the statement calls the compiled function, or passes it to another function."""
    for node in walk(statement):
        if isinstance(node, ast.Call):
            parts = [node.func, *node.args, *(k.value for k in node.keywords)]
            if any(ast.unparse(part) == name or ast.unparse(part).startswith(f"{name}.") for part in parts):
                return not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name)
    return False
