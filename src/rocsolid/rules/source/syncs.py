"""Calls that make the host wait for the device."""

import ast
from collections.abc import Iterator
from typing import Final

from rocsolid.model.source import Site, Source
from rocsolid.rules.source.syntax import literal

_WAITS: Final = frozenset(
    {
        "torch.cuda.synchronize",
        "torch.cuda.current_stream.synchronize",
        "torch.accelerator.synchronize",
        "torch.hip.synchronize",
    }
)
READS: Final = ("item", "tolist", "cpu", "numpy")
# On these, `.item()` and the like are no reading of a device tensor.
_HOST_WORDS: Final = frozenset({"np", "numpy", "cpu", "host", "config", "cfg", "df", "pd", "json", "args"})


def reads(source: Source, *names: str) -> Iterator[Site]:
    """`x.item()` and its like, without arguments, on what is not plainly of the host."""
    for site in source.methods(*names):
        if site.call.keywords or (site.call.args and not site.name.endswith(".cpu")):
            continue
        if not _on_host(site):
            yield site


_CONVERT: Final = ("float", "int", "bool")
_REDUCTIONS: Final = frozenset(
    {"sum", "max", "min", "mean", "norm", "any", "all", "amax", "amin", "argmax", "argmin", "prod", "std", "var"}
)


def conversions(source: Source) -> Iterator[Site]:
    """`float(x.sum())` and its like: a number is asked of what a tensor was reduced to."""
    for name in _CONVERT:
        for site in source.calls.get(name, ()):
            if site.name == name and len(site.call.args) == 1 and _is_reduction(source, site.call.args[0]):
                yield site


def _is_reduction(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _REDUCTIONS:
        return False
    name = source.resolve(node.func)
    return name.startswith("torch.") or _is_tensor_method(node, name)


def _on_host(site: Site) -> bool:
    """Whether the object says by its making or its name that it lies on the host."""
    func = site.call.func
    if not isinstance(func, ast.Attribute):
        return True
    inner = func.value
    for node in ast.walk(inner):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "numpy"):
            return True
        if isinstance(node, ast.Constant) and literal(node) == "cpu":
            return True
    words = {part for name in site.name.split(".")[:-1] for part in name.lower().split("_")}
    return not words.isdisjoint(_HOST_WORDS)


def queries(source: Source) -> Iterator[Site]:
    """`query` of a stream or event."""
    for site in source.methods("query"):
        owner = site.name.rpartition(".")[0].rpartition(".")[2].lower()
        if not site.call.args and not site.call.keywords and owner.endswith(("stream", "event")):
            yield site


def waits(source: Source) -> Iterator[Site]:
    """`torch.cuda.synchronize()`, and `synchronize` of a stream or event."""
    for site in source.calls.get("synchronize", ()):
        owner = site.name.rpartition(".")[0].rpartition(".")[2].lower()
        if site.name in _WAITS or any(word in owner for word in ("stream", "event", "cuda", "?")):
            yield site


_DECIDING: Final = frozenset({"any", "all", "equal", "allclose", "is_nonzero"})
_TORCH_DECIDING: Final = frozenset({f"torch.{name}" for name in _DECIDING})


def tensor_branches(source: Source) -> Iterator[Site]:
    """Tests that ask a tensor for a truth value: `if mask.any():`, `while not torch.all(done):`."""
    for site in source.tests:
        for call in _asked(site.node):
            name = source.resolve(call.func)
            last = name.rpartition(".")[2]
            if name in _TORCH_DECIDING or (last in ("any", "all") and "." in name and _is_tensor_method(call, name)):
                yield Site(site.node, name, site.scope, site.block)
                break


def _is_tensor_method(call: ast.Call, name: str) -> bool:
    words = {part for n in name.split(".")[:-1] for part in n.lower().split("_")}
    return not call.args and words.isdisjoint(_HOST_WORDS) and not name.startswith(("numpy.", "builtins."))


def _asked(test: ast.AST) -> Iterator[ast.Call]:
    """The calls whose truth value decides."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _asked(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _asked(test.operand)
    elif isinstance(test, ast.Call):
        yield test


def prints(source: Source) -> Iterator[Site]:
    """`print` of something that is computed in the body of a capture; of texts alone it is harmless."""
    for site in source.calls_to("print"):
        shown = [a.value if isinstance(a, ast.FormattedValue) else a for arg in site.call.args for a in _parts(arg)]
        if site.block is not None and site.block.captured and any(isinstance(a, ast.Name) for a in shown):
            yield site


def _parts(argument: ast.expr) -> list[ast.expr]:
    return argument.values if isinstance(argument, ast.JoinedStr) else [argument]
