"""`torch.compile` is called in a function that runs in every step.

## What it does
Reports `torch.compile(f)` in a function that calls the result once and then drops it: in `forward`, `backward` or `__call__`, and
elsewhere if `f` is a function of the same file.

## Why it matters
Torch finds the compiled code again, but every `torch.compile` call creates a new wrapper and looks it up: about eight times the
cost of calling a compiled function. If `f` is defined in the same function, its variables are checked too, and new values of
numbers compile again.

## Example
    import torch

    class Loss(torch.nn.Module):
        def forward(self, x):
            compute = torch.compile(self.compute)
            return compute(x)

## Use instead
    import torch

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.compiled = torch.compile(self.compute)

        def forward(self, x):
            return self.compiled(x)

## When to allow it
When the function is called once.
"""

import ast
from collections.abc import Iterator
from pathlib import PurePath

from rocsolid.model.evidence import issue
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch, walk
from rocsolid.rules.source.settings import compile_calls
from rocsolid.rules.source.syntax import enclosing_blocks, match_at

RULE = Rule(
    code="SRC129",
    name="compile-in-every-call",
    severity=Severity.WARNING,
    message="`torch.compile` runs in every call of `{subject}`",
    why="Each call creates a new wrapper and looks up the compiled code: 435 µs instead of 56 µs for a small function on one CPU.",
    fix="Compile once: at module level, in __init__, or in a function with functools.cache.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        issue("sgl-project/sglang#8353", "torch.compile was called again in every forward pass."),
        source_evidence("torch 2.13 __init__.py compile", "Every call creates a wrapper."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Compiles whose result is called and not kept: in `forward` and the like, or of a function of the file elsewhere."""
    for site in compile_calls(source):
        function = site.scope.name.rpartition(".")[2]
        is_cached = any("cache" in decorator for decorator in site.scope.decorators)
        if site.scope.kind != "function" or is_cached or _is_test(function, source) or not _is_dropped(site, source):
            continue
        target = source.scopes.get(source.resolve(site.call.args[0])) if site.call.args else None
        is_repeated = function == "__call__" or "forward" in function or "backward" in function
        is_library = target is not None and target.kind == "function" and not _runs_once(function)
        if is_repeated or is_library:
            yield match_at(site, function)


def _is_test(function: str, source: Source) -> bool:
    return function.startswith("test_") or PurePath(source.file).name.startswith("test_")


def _runs_once(function: str) -> bool:
    """Whether the name says that the function runs once, or is there to compile."""
    return any(
        word in function for word in ("main", "run", "init", "test", "bench", "compile", "setup", "load", "demo")
    )


def _is_dropped(site: Site, source: Source) -> bool:
    """Whether the result is called in this function, outside a loop, and is not stored, returned or passed on."""
    if any(other.call.func is site.node for other in source.calls.get("?", ())):
        return True  # torch.compile(f)(x)
    names = {
        assignment.name
        for assignment in source.assignments
        if assignment.scope is site.scope
        and isinstance(assignment.target, ast.Name)
        and assignment.value is not None
        and any(node is site.node for node in walk(assignment.value))
    }
    called_in_loop = any(
        block.kind in ("for", "while")
        for name in names
        for call in source.calls_to(name)
        if call.scope is site.scope
        for block in enclosing_blocks(call)
    )
    return bool(names) and not called_in_loop and not any(_is_kept(name, site) for name in names)


def _is_kept(name: str, site: Site) -> bool:
    called = False
    for node in walk(site.scope.node):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return True
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)) and name in {
            n.id for n in walk(node) if isinstance(n, ast.Name)
        }:
            return True
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == name:
            return True
        if isinstance(node, (ast.Return, ast.Yield)) and isinstance(node.value, ast.Name) and node.value.id == name:
            return True
        called = called or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name)
    return not called
