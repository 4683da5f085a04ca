"""Find host syncs: calls that make the CPU wait for the GPU."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from rocsolid.model.source import Site, Source, walk
from rocsolid.rules.source.syntax import literal

_SYNC_CALLS: Final = frozenset(
    {
        "torch.cuda.synchronize",
        "torch.cuda.current_stream.synchronize",
        "torch.accelerator.synchronize",
        "torch.hip.synchronize",
    }
)
VALUE_READS: Final = ("item", "tolist", "cpu", "numpy")
# If an object has one of these words in its name, it is probably not a GPU tensor.
_CPU_WORDS: Final = frozenset({"np", "numpy", "cpu", "host", "config", "cfg", "df", "pd", "json", "args"})
_CONVERSIONS: Final = ("float", "int", "bool")
REDUCTIONS: Final = frozenset(
    {"sum", "max", "min", "mean", "norm", "any", "all", "amax", "amin", "argmax", "argmin", "prod", "std", "var"}
)
_DECIDED_BY_CALLS: Final = frozenset({ast.Call, ast.BoolOp, ast.UnaryOp})
_BOOLEAN_FUNCTIONS: Final = frozenset(f"torch.{name}" for name in ("any", "all", "equal", "allclose", "is_nonzero"))


def value_reads(source: Source, *names: str) -> Iterator[Site]:
    """`x.item()` and similar calls without arguments, unless `x` is clearly on the CPU."""
    for site in source.methods(*names):
        if site.call.keywords or (site.call.args and not site.name.endswith(".cpu")):
            continue
        if not _on_cpu(site, source):
            yield site


def number_conversions(source: Source) -> Iterator[Site]:
    """`float(x.sum())` and similar calls, which convert a reduced tensor to a Python number."""
    for name in _CONVERSIONS:
        for site in source.calls.get(name, ()):
            if site.name == name and len(site.call.args) == 1 and _is_reduction(source, site.call.args[0]):
                yield site


def _is_reduction(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in REDUCTIONS:
        return False
    name = source.resolve(node.func)
    return name.startswith("torch.") or _is_tensor_method(node, name)


def _on_cpu(site: Site, source: Source) -> bool:
    """Whether the object is on the CPU, judged by the calls that create it, here or in an earlier line, or by its name."""
    func = site.call.func
    if not isinstance(func, ast.Attribute):
        return True
    root = func.value
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if isinstance(root, ast.Name):
        assigned = source.assignments_by_name.get(root.id, ())
        if any(_made_on_cpu(a.value) for a in assigned if a.scope is site.scope and a.value):
            return True
    if _made_on_cpu(func.value):
        return True
    words = {part for name in site.name.split(".")[:-1] for part in name.lower().split("_")}
    return not words.isdisjoint(_CPU_WORDS)


def _made_on_cpu(value: ast.AST) -> bool:
    for node in walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "numpy"):
            return True
        if isinstance(node, ast.Constant) and literal(node) == "cpu":
            return True
    return False


def stream_queries(source: Source) -> Iterator[Site]:
    """`query()` of a stream or event."""
    for site in source.methods("query"):
        owner = site.name.rpartition(".")[0].rpartition(".")[2].lower()
        if not site.call.args and not site.call.keywords and owner.endswith(("stream", "event")):
            yield site


def sync_calls(source: Source) -> Iterator[Site]:
    """`torch.cuda.synchronize()`, and `synchronize()` of a stream or event."""
    for site in source.calls.get("synchronize", ()):
        owner = site.name.rpartition(".")[0].rpartition(".")[2].lower()
        if site.name in _SYNC_CALLS or any(word in owner for word in ("stream", "event", "cuda", "?")):
            yield site


@lru_cache(maxsize=2)  # two rules report them
def tensor_branches(source: Source) -> tuple[Site, ...]:
    """Conditions that need the value of a tensor: `if mask.any():`, `while not torch.all(done):`."""
    return tuple(_tensor_branches(source))


def _tensor_branches(source: Source) -> Iterator[Site]:
    for site in source.conditions:
        if type(site.node) not in _DECIDED_BY_CALLS:
            continue
        for call in _deciding_calls(site.node):
            name = source.resolve(call.func)
            method = name.rpartition(".")[2]
            if name in _BOOLEAN_FUNCTIONS or (
                method in ("any", "all") and "." in name and _is_tensor_method(call, name)
            ):
                yield Site(site.node, name, site.scope, site.block)
                break


def _is_tensor_method(call: ast.Call, name: str) -> bool:
    words = {part for n in name.split(".")[:-1] for part in n.lower().split("_")}
    return not call.args and words.isdisjoint(_CPU_WORDS) and not name.startswith(("numpy.", "builtins."))


def _deciding_calls(condition: ast.AST) -> Iterator[ast.Call]:
    """The calls whose truth value the condition depends on."""
    if isinstance(condition, ast.BoolOp):
        for value in condition.values:
            yield from _deciding_calls(value)
    elif isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        yield from _deciding_calls(condition.operand)
    elif isinstance(condition, ast.Call):
        yield condition


def captured_prints(source: Source) -> Iterator[Site]:
    """`print` of a variable in the body of a capture. Printing only literals is harmless."""
    for site in source.calls_to("print"):
        printed = [
            a.value if isinstance(a, ast.FormattedValue) else a for arg in site.call.args for a in _string_parts(arg)
        ]
        if site.block is not None and site.block.captured and any(isinstance(a, ast.Name) for a in printed):
            yield site


def _string_parts(argument: ast.expr) -> list[ast.expr]:
    """The parts of an f-string; the argument itself if it is something else."""
    return argument.values if isinstance(argument, ast.JoinedStr) else [argument]
