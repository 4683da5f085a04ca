"""Collects the facts of a parsed file."""

import ast
import builtins
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rocsolid.lint.allow_comments import find_allow_comments
from rocsolid.lint.facts import FileFacts, PassedFunction, RuleMatch
from rocsolid.lint.regions import SCOPE_MARK, lambda_target, may_capture, passed_models, region_starts, wrappers
from rocsolid.model.source import Scope, Site, Source, full_name

# Decorators of functions that torch.compile does not trace into. A decorator with `cache` in its name counts too: such a function
# has run before, or runs once.
NOT_TRACED: Final = frozenset(
    {
        "torch.compiler.disable",
        "torch._dynamo.disable",
        "torch._disable_dynamo",
        "torch._dynamo.disallow_in_graph",
        "torch._dynamo.allow_in_graph",
        "torch.compiler.allow_in_graph",
        "torch.library.custom_op",
        "torch._library.custom_op",
        "torch.library.triton_op",
        "torch.library.register_fake",
        "torch.library.impl",
        "torch.jit.ignore",
        "torch.jit.unused",
        "triton.jit",
        "functools.cache",
        "functools.lru_cache",
        "torch._dynamo.assume_constant_result",
        "torch.compiler.assume_constant_result",
    }
)
DYNAMO_DISABLED: Final = frozenset({"torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo"})
# Methods that return the object they are called on, or one of the same class.
_SAME_OBJECT: Final = frozenset(
    {"to", "cuda", "cpu", "eval", "train", "half", "float", "bfloat16", "requires_grad_", "to_empty", "share_memory"}
)
# Calls that never run a function of the project; half of all calls are of this kind.
_EXTERNAL_PREFIXES: Final = ("?", "torch.", "numpy.", "triton.", "math.", "os.", "logging.", "typing.", "itertools.")
_FUNCTION_EXPRESSIONS: Final = frozenset({ast.Name, ast.Attribute, ast.Lambda})
_BUILTINS: Final = frozenset(dir(builtins))
_ITERATORS: Final = frozenset({"enumerate", "reversed", "itertools.islice"})
_CONTAINERS: Final = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict", "list", "tuple"})


def collect_facts(source: Source, text: str, matches: Sequence[RuleMatch], *, package: bool) -> FileFacts:
    """Return the facts of a parsed file, given its text and the matches of the rules."""
    return FileFacts(
        module=source.module,
        package=package,
        lines=line_count(text),
        matches=tuple(matches),
        allows=tuple(find_allow_comments(text)),
        region_starts=tuple(region_starts(source)),
        wrappers=tuple(wrappers(source)),
        passed_functions=(*_passed_functions(source), *map(PassedFunction._make, passed_models(source))),
        may_capture=may_capture(source),
        symbols_json=json.dumps(_symbols_data(source), separators=(",", ":")),
    )


def line_count(text: str) -> int:
    """Return the number of lines of a file."""
    return text.count("\n") + (not text.endswith("\n"))


def _passed_functions(source: Source) -> Iterator[PassedFunction]:
    """Yield the functions and classes of this file that are passed to a call or decorated."""
    for scope in source.scopes.values():
        for decorator in scope.decorators:
            yield PassedFunction(
                receiver=decorator,
                argument=f"{SCOPE_MARK}{scope.name}",
                position=0,
                scope="",
                line=getattr(scope.node, "lineno", 1),
            )
    for sites in source.calls.values():
        for site in sites:
            for position, value in enumerate(site.node.args[:3]):  # type: ignore[attr-defined]
                if type(value) not in _FUNCTION_EXPRESSIONS:
                    continue
                argument = _function_named(value, site.scope, source)
                if argument:
                    yield PassedFunction(
                        receiver=site.name, argument=argument, position=position, scope=site.scope.name, line=site.line
                    )


def _function_named(value: ast.expr, scope: Scope, source: Source) -> str:
    if isinstance(value, ast.Lambda):
        return lambda_target(value, scope)
    if isinstance(value, ast.Name):
        return value.id if value.id in source.scopes or f"{scope.name}.{value.id}" in source.scopes else ""
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        owner = scope.enclosing_class
        return f"self.{value.attr}" if owner and f"{owner.name}.{value.attr}" in source.scopes else ""
    return ""


def _symbols_data(source: Source) -> list[Any]:
    functions: dict[str, list[Any]] = {}
    for name, scope in source.scopes.items():
        if scope.kind != "class":
            not_traced = not NOT_TRACED.isdisjoint(scope.decorators) or any("cache" in d for d in scope.decorators)
            flags = int(not_traced) | 2 * int(not DYNAMO_DISABLED.isdisjoint(scope.decorators))
            functions[name] = [getattr(scope.node, "lineno", 1), scope.params, flags, [], _annotated(scope, source)]
    for sites in source.calls.values():
        for site in sites:
            name = site.name
            if name == "?" and isinstance(site.call.func, ast.Subscript):  # self.layers[i](x)
                name = full_name(site.call.func.value, source.aliases)
            if site.scope.kind == "class" or name.startswith(_EXTERNAL_PREFIXES) or name in _BUILTINS:
                continue
            block = site.block
            flags = 0 if block is None else block.not_compiled | 2 * block.not_captured | 4 * block.captured
            functions[site.scope.name][3].append([name, site.line, flags])
    classes = {
        name: [[source.resolve(b) for b in scope.node.bases], {}]
        for name, scope in source.scopes.items()
        if isinstance(scope.node, ast.ClassDef)
    }
    for write in source.assignments:
        _bind(write.name, write.value, write.scope, source, functions, classes)
    for site in source.loops:
        _bind_loop(site, source, functions)
    star_imports = [site.name[:-2] for site in source.imports if site.name.endswith(".*")]
    return [dict(source.aliases), star_imports, functions, classes]


def _bind(
    name: str,
    value: ast.expr | None,
    scope: Scope,
    source: Source,
    functions: dict[str, list[Any]],
    classes: dict[str, list[Any]],
) -> None:
    if value is None:
        return
    if name.startswith("self.") and name.count(".") == 1:
        owner = scope.enclosing_class
        if owner and owner.name in classes:
            origins = classes[owner.name][1].setdefault(name[5:], [])
            bindings = functions[scope.name][4] if scope.name in functions else {}
            origins += [o for o in (bindings.get(o, o) for o in _origins(value, source)) if o not in origins]
    elif "." not in name and scope.name in functions:
        origin = next(iter(_origins(value, source)), "")
        if origin and origin != name:  # `model = model.eval()` stays the same object
            functions[scope.name][4][name] = origin


def _bind_loop(site: Site, source: Source, functions: dict[str, list[Any]]) -> None:
    """`for layer in self.layers`: the name refers to the elements of the container."""
    node = site.node
    if not isinstance(node, ast.For) or site.scope.name not in functions:
        return
    target, iterated = node.target, node.iter
    if isinstance(iterated, ast.Call) and source.resolve(iterated.func) in _ITERATORS and iterated.args:
        target = target.elts[-1] if isinstance(target, ast.Tuple) else target
        iterated = iterated.args[0]
        if isinstance(iterated, ast.Call) and source.resolve(iterated.func) in _ITERATORS and iterated.args:
            iterated = iterated.args[0]
    if isinstance(iterated, ast.Subscript):
        iterated = iterated.value
    name = full_name(iterated, source.aliases)
    if name.startswith("self.") and isinstance(target, ast.Name):
        functions[site.scope.name][4].setdefault(target.id, name)


def _origins(value: ast.expr, source: Source) -> Iterator[str]:
    """The expressions that a value comes from: `Cls()`, another name, or those of a container's elements."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_OBJECT:
        yield from _origins(value.func.value, source)
    elif isinstance(value, ast.Call) and source.resolve(value.func) not in _CONTAINERS:
        name = source.resolve(value.func)
        if not name.startswith("?"):
            yield f"{name}()"
        for argument in value.args:  # make_layers(12, lambda prefix: Layer(prefix))
            if isinstance(argument, ast.Lambda) and isinstance(argument.body, ast.Call):
                yield from _origins(argument.body, source)
    elif isinstance(value, (ast.Name, ast.Attribute)):
        name = source.resolve(value)
        if not name.startswith("?"):
            yield name
    else:
        for part in _parts(value):
            yield from _origins(part, source)


def _annotated(scope: Scope, source: Source) -> dict[str, str]:
    """Parameters with a class as annotation, as if they were assigned from a call of that class."""
    arguments = getattr(scope.node, "args", None)
    if not isinstance(arguments, ast.arguments):
        return {}
    given = [
        (a.arg, a.annotation) for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.annotation
    ]
    named = [(name, _class_in(annotation)) for name, annotation in given]
    return {name: f"{source.resolve(node)}()" for name, node in named if node is not None}


def _class_in(annotation: ast.expr) -> ast.expr | None:
    """The class in an annotation; `X | None` is X."""
    if isinstance(annotation, ast.BinOp):
        sides = [s for s in (annotation.left, annotation.right) if not isinstance(s, ast.Constant)]
        return _class_in(sides[0]) if len(sides) == 1 else None
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str) and annotation.value.isidentifier():
        return ast.Name(annotation.value)
    return annotation if isinstance(annotation, (ast.Name, ast.Attribute)) else None


def _parts(value: ast.expr) -> list[ast.expr]:
    """The elements of a container, or the branches of a conditional expression."""
    if isinstance(value, ast.Call):
        return value.args
    if isinstance(value, (ast.List, ast.Tuple)):
        return value.elts
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return [value.elt]
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else []
