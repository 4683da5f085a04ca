"""A `try` around `torch.compile` waits for an error that does not come there.

## What it does
Reports `try: model = torch.compile(model)` with a handler, where the `try` does not also call the result.

## Why it matters
`torch.compile` returns at once and compile_calls at the first call. A model that cannot be compiled raises there, outside the
`try`, and the fallback in the handler is never used.

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
When the handler is for a torch that has no `torch.compile`.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_calls
from rocsolid.rules.source.syntax import enclosing_blocks, match_at

RULE = Rule(
    code="SRC122",
    name="try-around-lazy-compile",
    severity=Severity.WARNING,
    message="torch.compile stands in a try, and what it returns is first called outside",
    why="torch.compile returns at once; what cannot be compiled raises at the first call, where nothing catches it.",
    fix="Call the compiled function once inside the try.",
    check="rocsolid explain SRC122",
    since="0.1",
    evidence=(issue("ScrollPrize/villa#1703", "The fallback around torch.compile was never reached."),),
)
_BROAD = frozenset({"Exception", "BaseException", "RuntimeError"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments of a compiled function in the body of a `try` of few statements with a broad handler."""
    for site in compile_calls(source):
        block = next(iter(enclosing_blocks(site)), None)
        if block is None or block.kind != "try" or block.branch != "body" or not site.call.args:
            continue
        attempt = block.node
        if not isinstance(attempt, ast.Try) or not _catches_much(attempt, source):
            continue
        bound = _bound_to(attempt, site.call)
        if bound and not any(_calls(statement, bound, source) for statement in attempt.body):
            yield match_at(site, "torch.compile")


def _catches_much(attempt: ast.Try, source: Source) -> bool:
    return any(h.type is None or source.resolve(h.type) in _BROAD for h in attempt.handlers)


def _bound_to(attempt: ast.Try, call: ast.Call) -> str:
    for statement in attempt.body:
        if isinstance(statement, ast.Assign) and statement.value is call:
            return ast.unparse(statement.targets[0])
    return ""


def _calls(statement: ast.stmt, name: str, source: Source) -> bool:
    """Whether the compiled thing is called there, or handed to something that may."""
    del source
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            parts = [node.func, *node.args, *(k.value for k in node.keywords)]
            if any(ast.unparse(part) == name or ast.unparse(part).startswith(f"{name}.") for part in parts):
                return not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name)
    return False
