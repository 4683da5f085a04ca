"""Finds the places where regions start: code that `torch.compile` traces, or that a graph capture records."""

import ast
from collections.abc import Iterator
from functools import cache
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


# Parameters with one of these words in their name may be passed on to a function that compiles or captures them.
_MODEL_WORDS: Final = frozenset(
    {"model", "module", "net", "network", "policy", "transformer", "unet", "vae", "encoder", "decoder"}
)


# What an argument that is a model looks like: `model` or `Net()`.
_MODELS: Final = frozenset({ast.Name, ast.Call})


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


def passed_models(source: Source) -> Iterator[tuple[str, str, int, str, int, str]]:
    """Yield the objects and parameters that are passed to a call and may be a model, as the fields of `PassedFunction`."""
    objects = {
        (a.scope.name, a.name) for a in source.assignments if type(a.value) is ast.Call and _created_class(a.value)
    }
    names = {name for _, name in objects}
    for sites in source.calls.values():
        for site in sites:
            call: ast.Call = site.node  # type: ignore[assignment]
            passed = [(position, "", value) for position, value in enumerate(call.args[:3]) if type(value) in _MODELS]
            passed += [(-1, k.arg, k.value) for k in call.keywords if k.arg and type(k.value) in _MODELS]
            if not passed or site.name.startswith(("torch.", "?")):
                continue
            for position, keyword, value in passed:
                if argument := _model(value, site.scope, objects, names):
                    yield site.name, argument, position, site.scope.name, site.line, keyword


def _model(value: ast.expr, scope: Scope, objects: set[tuple[str, str]], names: set[str]) -> str:
    """Return `Net()` for an object, the name of a variable that has one, or that of a parameter that may be a model.

    `names` are the names of all variables in `objects`.
    """
    if not isinstance(value, ast.Name):
        created = _created_class(value)
        return f"{created}()" if created else ""
    name = value.id
    if name not in names and not _may_name_a_model(name):
        return ""
    for enclosing in scope.self_and_parents():
        if (enclosing.name, name) in objects:
            return name
        if name in enclosing.params:
            return name if _may_name_a_model(name) else ""
    return ""


@cache
def _may_name_a_model(name: str) -> bool:
    return not _MODEL_WORDS.isdisjoint(name.lower().split("_"))


def _created_class(value: ast.expr) -> str:
    """Return the class of `Net()` or `Net().to(device).eval()`, by its capital letter; empty for anything else."""
    while type(value) is ast.Call:
        function = value.func
        called = getattr(function, "attr", "") or getattr(function, "id", "")
        if called[:1].isupper() and (name := _dotted(function)):
            return name
        value = function.value if type(function) is ast.Attribute else function
    return ""


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
            if site.call.args:
                yield from _wrapper_of_parameter(site, _dotted(site.call.args[0]), region, source)
    for site in source.methods("compile"):
        if isinstance(site.call.func, ast.Attribute):  # `model.compile()`
            yield from _wrapper_of_parameter(site, _dotted(site.call.func.value), Region.COMPILED, source)
    for sites in source.calls.values() if may_capture(source) else ():
        for site in sites:
            if site.block is not None and site.block.captured:
                yield from _wrapper_of_parameter(site, _dotted(site.call.func), Region.CAPTURED, source)


def _wrapper_of_parameter(site: Site, name: str, region: Region, source: Source) -> Iterator[Wrapper]:
    """Yield the function that has `name` as a parameter; for `self.model`, the `__init__` that stores a parameter there."""
    scope: Scope | None = site.scope
    owner = scope.enclosing_class if scope is not None and name.startswith("self.") else None
    if owner is not None:
        stores = [a for a in source.assignments if a.name == name and a.scope.name == f"{owner.name}.__init__"]
        if len(stores) != 1 or not isinstance(stores[0].value, ast.Name):
            return
        scope, name = stores[0].scope, stores[0].value.id
    while scope is not None:
        if scope.kind == "function" and name in scope.params:
            position = scope.params.index(name)
            if scope.params[0] in ("self", "cls"):
                position -= 1
            yield Wrapper(region=region, function=scope.name, position=position, line=site.line)
            return
        scope = scope.parent
