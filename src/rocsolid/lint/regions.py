"""Finds the places where regions start: code that `torch.compile` traces, or that a graph capture records."""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocsolid.lint.enclosing_blocks import CAPTURE_BLOCKS
from rocsolid.model.source import Region, Scope, Site, Source

COMPILERS: Final = {
    "torch.compile": Region.COMPILED,
    "torch.compiler.compile": Region.COMPILED,
    "torch._dynamo.optimize": Region.COMPILED,
    "rocsolid.compile": Region.COMPILED,
    "vllm.compilation.decorators.support_torch_compile": Region.COMPILED,
    "torch.cuda.make_graphed_callables": Region.CAPTURED,
    "torch.cuda.graphs.make_graphed_callables": Region.CAPTURED,
    "rocsolid.capture": Region.CAPTURED,
    "rocsolid.optimize": Region.CAPTURED,
}


# Starts a `RegionStart.target` that is the full name of a scope in the file. Other targets are expressions that must be resolved.
SCOPE_MARK: Final = "="


class RegionStart(NamedTuple):
    """A place where a function is compiled or captured."""

    region: Region
    target: str  # the function: an expression such as `self.model`, or SCOPE_MARK and the name of a scope
    scope: str
    line: int


class Wrapper(NamedTuple):
    """A function that compiles or captures one of its arguments."""

    region: Region
    function: str
    position: int  # of that argument, without `self`
    line: int


def region_starts(source: Source, compilers: dict[str, Region] = COMPILERS) -> Iterator[RegionStart]:
    """Yield every place in a file where a region starts."""
    for scope in source.scopes.values():
        for decorator in scope.decorators:
            region = compilers.get(decorator)
            if region:
                yield RegionStart(
                    region=region, target=f"{SCOPE_MARK}{scope.name}", scope="", line=getattr(scope.node, "lineno", 1)
                )
    for name, region in compilers.items():
        for site in source.calls_to(name):
            yield from _compiled_arguments(site, region)
    for site in source.methods("compile"):
        receiver = _dotted(site.call.func.value) if isinstance(site.call.func, ast.Attribute) else ""
        # `model.compile()`; a receiver that is not a module of the project resolves to nothing
        if receiver and site.name not in compilers and receiver.partition(".")[0] not in source.aliases:
            yield RegionStart(region=Region.COMPILED, target=receiver, scope=site.scope.name, line=site.line)


def _compiled_arguments(site: Site, region: Region) -> Iterator[RegionStart]:
    """Yield the function that is passed to a compile or capture call, or each function of a tuple."""
    call = site.call
    if not call.args:
        return
    first = call.args[0]
    for value in first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]:
        target = _target(value, site.scope)
        if target:
            yield RegionStart(region=region, target=target, scope=site.scope.name, line=site.line)


def _target(value: ast.expr, scope: Scope) -> str:
    if isinstance(value, ast.Lambda):
        return lambda_target(value, scope)
    if isinstance(value, (ast.Name, ast.Attribute)):
        return _dotted(value)
    if isinstance(value, ast.Call) and isinstance(value.func, (ast.Name, ast.Attribute)):
        return f"{_dotted(value.func)}()"  # torch.compile(Model())
    return ""


def lambda_target(node: ast.Lambda, scope: Scope) -> str:
    """Return the target of a lambda, which `parse` names after its place."""
    name = f"{scope.name}.<lambda>:{node.lineno}:{node.col_offset}".lstrip(".")
    return f"{SCOPE_MARK}{name}"


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def may_capture(source: Source) -> bool:
    """Return whether a file may capture a CUDA graph; a cheap check."""
    return "capture_begin" in source.text or any(item.name in CAPTURE_BLOCKS for item in source.with_items)


def wrappers(source: Source) -> Iterator[Wrapper]:
    """Yield the functions that compile one of their parameters, or call it inside a capture."""
    for name, region in COMPILERS.items():
        for site in source.calls_to(name):
            if site.call.args and isinstance(site.call.args[0], ast.Name):
                yield from _wrapper_of_parameter(site, site.call.args[0].id, region)
    for sites in source.calls.values() if may_capture(source) else ():
        for site in sites:
            if site.block is not None and site.block.captured and isinstance(site.call.func, ast.Name):
                yield from _wrapper_of_parameter(site, site.call.func.id, Region.CAPTURED)


def _wrapper_of_parameter(site: Site, name: str, region: Region) -> Iterator[Wrapper]:
    scope: Scope | None = site.scope
    while scope is not None:
        if scope.kind == "function" and name in scope.params:
            position = scope.params.index(name)
            if scope.params[0] in ("self", "cls"):
                position -= 1
            yield Wrapper(region=region, function=scope.name, position=position, line=site.line)
            return
        scope = scope.parent
