"""Code compares a compute capability without checking the vendor.

## What it does
Reports comparisons of `torch.cuda.get_device_capability()` with numbers, also through variables and functions of the file,
when nothing around them checks for ROCm and an AMD GPU gives another result than Turing, Ampere and Ada.

## Why it matters
On ROCm, the call returns the number in the gfx name. For gfx942 it returns (9, 4), which is greater than Hopper's
(9, 0), and for gfx90a it returns exactly (9, 0). A check for Hopper is then true, and the code uses instructions that
do not exist on AMD GPUs.

## Example
    import torch

    if torch.cuda.get_device_capability()[0] >= 9:
        use_hopper_kernels()

## Use instead
    import torch

    if torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 9:
        use_hopper_kernels()

## When to allow it
When the check is meant for both vendors. "At least 8" and "at least 8.9" are not reported, because AMD GPUs have what
such checks are usually for: bfloat16 and FP8.
"""

import ast
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Scope, Site, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import literal, mentions, source_text
from rocsolid.rules.source.vendors import checks_vendor, match_on_rocm

RULE = Rule(
    code="SRC403",
    name="capability-check-assumes-nvidia",
    severity=Severity.WARNING,
    message="`{subject}` takes AMD GPUs for NVIDIA GPUs",
    why="On ROCm, the capability is the gfx number: gfx942 returns (9, 4). This check treats {gpus} like a newer NVIDIA GPU.",
    fix="Add `torch.version.hip is None and ...`, or check for the feature itself.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "torch 2.13 cuda/__init__.py get_device_capability",
            "It returns major and minor of the device properties, which HIP fills with the gfx number.",
        ),
    ),
)
_CAPABILITY = "get_device_capability"
# Methods of vLLM's and SGLang's platform objects, which return the gfx number on ROCm too.
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "has_device_capability": lambda gpu, wanted: gpu >= wanted,
    "is_device_capability": lambda gpu, wanted: gpu == wanted,
    "is_device_capability_family": lambda gpu, wanted: gpu[0] == wanted[0],
}
_PRINTING = frozenset({"print", "write", "debug", "info", "warning", "warn", "error", "log", "append"})
_OLDER = ((7, 5), (8, 0), (8, 9))  # Turing, Ampere and Ada: what is right for one of them may be right for AMD
_AMD_GPUS = {
    "gfx90a": (9, 0), "gfx942": (9, 4), "gfx950": (9, 5), "gfx1100": (11, 0), "gfx1151": (11, 5), "gfx1201": (12, 0),
}  # fmt: skip
_CDNA = frozenset({"gfx90a", "gfx942", "gfx950"})
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
Value = int | float | tuple[Any, ...] | None
_MAX_DEPTH = 6  # of names and functions between the comparison and the call


def check(source: Source) -> Iterator[SourceMatch]:
    """The first misleading comparison in each function that never checks the vendor."""
    if "device_capability" not in source.text and not (
        ".major" in source.text and "get_device_properties" in source.text
    ):
        return
    returned = {id(site.node) for site in source.returns}
    reported: set[str] = set()
    for site in _capability_expressions(source):
        if site.scope.name in reported or id(site.node) in _raising_tests(source):
            continue
        for node in walk(site.node):
            taken = _misleading_on(node, site.scope, source) if isinstance(node, (ast.Compare, ast.Call)) else []
            if taken and not _selects_a_number(node, source):
                reported.add(site.scope.name)
                at = Site(node, "", site.scope, site.block)
                if not _function_checks_vendor(site, source):
                    # Consumer GPUs alone are affected: reported only if the function returns whether something is supported.
                    uncertain = _CDNA.isdisjoint(taken) and (_is_exact(node) or id(site.node) not in returned)
                    facts = {"gpus": ", ".join(taken), "uncertain": uncertain}
                    yield from match_on_rocm(at, source, source_text(node), models=False, **facts)
                break


def _selects_a_number(node: ast.AST, source: Source) -> bool:
    """Whether the check only selects between two numbers, such as block sizes."""
    return any(
        isinstance(choice, ast.IfExp)
        and isinstance(literal(choice.body), int)
        and isinstance(literal(choice.orelse), int)
        and any(part is node for part in walk(choice.test))
        for choice in source.branches
    )


def _is_exact(node: ast.AST) -> bool:
    """Whether the check is for one model: `== 12`. Few consumer GPUs of AMD happen to have the same number."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and not node.func.attr.startswith("has_")
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn))


@lru_cache(maxsize=2)
def _raising_tests(source: Source) -> frozenset[int]:
    """The conditions that guard a `raise` or are asserted: another GPU fails there, or a few lines later."""
    return frozenset(
        id(node.test)
        for node in source.branches
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise))
    )


def _capability_expressions(source: Source) -> list[Site]:
    """The expressions whose values may depend on the capability: through calls, attributes, variables and functions of the file."""
    targets = {id(a.value): a.name.rpartition(".")[2] for a in source.assignments}
    targets |= {id(s.node): s.scope.name.rpartition(".")[2] for s in source.returns}
    sites = list(_expressions(source))
    used: dict[int, set[str]] = {}  # names by index, of the expressions on lines with one of the names
    new = names = {_CAPABILITY, *_TESTS, "major", "minor", "to_int"}
    for depth in range(_MAX_DEPTH + 1):
        near = sorted({line for name in new for line in _lines_with(name, source.text)})
        for index, site in enumerate(sites):
            first, last = site.node.lineno, site.node.end_lineno  # type: ignore[attr-defined]
            following = bisect_left(near, first)
            if following < len(near) and near[following] <= last and index not in used:
                used[index] = set(_last_names(site.node))
        new = {targets.get(id(sites[index].node), "") for index, u in used.items() if not names.isdisjoint(u)}
        new = {name for name in new - names if name.isidentifier()}
        if not new or depth == _MAX_DEPTH:
            break
        names = names | new
    return [site for index, site in enumerate(sites) if not names.isdisjoint(used.get(index, ()))]


def _lines_with(name: str, text: str) -> Iterator[int]:
    line, position = 1, 0
    while (found := text.find(name, position)) >= 0:
        line += text.count("\n", position, found)
        yield line
        position = found + len(name)


def _last_names(node: ast.AST) -> Iterator[str]:
    for part in walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _expressions(source: Source) -> Iterator[Site]:
    """Conditions, returned values, assigned values, and the arguments of calls that are statements, except of those that only print."""
    yield from source.conditions
    yield from source.returns
    statements = set(map(id, source.statements))
    for sites in source.calls.values():
        for site in sites:
            if id(site.node) in statements and site.name.rpartition(".")[2] not in _PRINTING:
                arguments = (*site.call.args, *(k.value for k in site.call.keywords))
                yield from (Site(argument, "", site.scope, site.block) for argument in arguments)
    for assignment in source.assignments:
        if assignment.value is not None:
            yield Site(assignment.value, "", assignment.scope, assignment.block)


def _misleading_on(node: ast.Compare | ast.Call, scope: Scope, source: Source) -> list[str]:
    """The AMD GPUs for which the check has another result than for every older NVIDIA GPU, so that they pass for a newer one."""
    older = [_result(node, gpu, scope, source) for gpu in _OLDER]
    if None in older:
        return []
    return [name for name, gpu in _AMD_GPUS.items() if _result(node, gpu, scope, source) not in older]


def _result(node: ast.Compare | ast.Call, gpu: tuple[int, int], scope: Scope, source: Source) -> bool | None:
    """The result of a check for a GPU with that capability; None if it is no such check."""
    if isinstance(node, ast.Call):
        test = _TESTS.get(node.func.attr) if isinstance(node.func, ast.Attribute) else None
        wanted = _value(node.args[0], gpu, scope, source) if test and node.args else None
        wanted = divmod(wanted, 10) if isinstance(wanted, int) else wanted
        return bool(test(gpu, wanted)) if test and isinstance(wanted, tuple) else None
    if len(node.ops) != 1 or not _depends_on_gpu(node, scope, source):
        return None
    left, right = (_value(side, gpu, scope, source) for side in (node.left, node.comparators[0]))
    compare = _OPERATORS.get(type(node.ops[0]))
    if left is None or right is None or compare is None:
        return None
    try:
        return bool(compare(left, right))
    except TypeError:
        return None


def _depends_on_gpu(node: ast.Compare, scope: Scope, source: Source) -> bool:
    """Whether one side changes with the major number."""
    sides = (node.left, node.comparators[0])
    return any(_value(s, (1, 4), scope, source) != _value(s, (3, 4), scope, source) for s in sides)


def _value(node: ast.expr | None, gpu: tuple[int, int], scope: Scope, source: Source, depth: int = 0) -> Value:
    """The value of an expression of numbers and capabilities; None for anything else."""
    if depth > _MAX_DEPTH or node is None:
        return None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) else None
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        values = tuple(_value(e, gpu, scope, source, depth + 1) for e in node.elts)
        return None if None in values else values
    if isinstance(node, ast.BinOp):
        left, right = (_value(side, gpu, scope, source, depth + 1) for side in (node.left, node.right))
        return _computed(_ARITHMETIC.get(type(node.op)), left, right)
    if isinstance(node, ast.Call):
        return _number_in_text(node, gpu, scope, source, depth) or _called_value(node, gpu, source, depth)
    if isinstance(node, ast.Attribute):
        return _attribute_value(node, gpu, scope, source, depth)
    if isinstance(node, ast.Subscript):
        value, index = _value(node.value, gpu, scope, source, depth + 1), literal(node.slice)
        return (
            value[index]
            if isinstance(value, tuple) and isinstance(index, int) and -len(value) <= index < len(value)
            else None
        )
    return _assigned_value(node, gpu, scope, source, depth) if isinstance(node, ast.Name) else None


def _computed(compute: Callable[[Any, Any], Any] | None, left: Value, right: Value) -> Value:
    if compute is None or not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        return None
    try:
        value: Value = compute(left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return value


def _number_in_text(node: ast.Call, gpu: tuple[int, int], scope: Scope, source: Source, depth: int) -> Value:
    """The value of `int(f"{major}{minor}")` or `float(f"{major}.{minor}")`."""
    name = source.resolve(node.func)
    if name not in ("int", "float") or len(node.args) != 1 or not isinstance(node.args[0], ast.JoinedStr):
        return None
    text = ""
    for part in node.args[0].values:
        value = _value(part.value, gpu, scope, source, depth + 1) if isinstance(part, ast.FormattedValue) else None
        text += str(part.value if isinstance(part, ast.Constant) else value)
    try:
        return int(text) if name == "int" else float(text)
    except ValueError:
        return None


def _called_value(node: ast.Call, gpu: tuple[int, int], source: Source, depth: int) -> Value:
    name = source.resolve(node.func)
    if name.rpartition(".")[2] == _CAPABILITY:
        return gpu
    if name == "tuple" and node.args:
        return _value(node.args[0], gpu, source.scopes[""], source, depth + 1)
    if name.endswith(".to_int"):
        return gpu[0] * 10 + gpu[1]
    function = source.scopes.get(name)
    if function is None or function.kind != "function":
        return None
    values = [_value(s.node, gpu, function, source, depth + 1) for s in source.returns if s.scope is function]  # type: ignore[arg-type]
    return next((value for value in values if value is not None), None)


def _attribute_value(node: ast.Attribute, gpu: tuple[int, int], scope: Scope, source: Source, depth: int) -> Value:
    if node.attr not in ("major", "minor"):
        return None
    owner = node.value
    if isinstance(owner, ast.Name):
        owner = next((v for v in _assigned(owner.id, scope, source) if v is not None), owner)
    is_properties = isinstance(owner, ast.Call) and source.resolve(owner.func) == "torch.cuda.get_device_properties"
    if is_properties or _value(node.value, gpu, scope, source, depth + 1) == gpu:
        return gpu[node.attr == "minor"]
    return None


def _assigned_value(used: ast.Name, gpu: tuple[int, int], scope: Scope, source: Source, depth: int) -> Value:
    name = used.id
    assigned = source.assignments_by_name.get(name, ())
    # Of several assignments in a function, the last one before the use counts: `cc = cc[0] * 10 + cc[1]`.
    before = [a for a in assigned if a.scope is scope and a.node.lineno < used.lineno]
    in_order = [*reversed(before), *(a for a in assigned if a not in before)]
    for outer in scope.self_and_parents():
        for assignment in in_order:
            if assignment.scope is outer and assignment.value is not None:
                value = _value(assignment.value, gpu, outer, source, depth + 1)
                target = assignment.node.targets[0] if isinstance(assignment.node, ast.Assign) else None
                if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, tuple):
                    index = target.elts.index(assignment.target)
                    value = value[index] if index < len(value) else None
                if value is not None:
                    return value
        if name in outer.params:
            return None
    return None


def _assigned(name: str, scope: Scope, source: Source) -> Iterator[ast.expr | None]:
    return (a.value for a in source.assignments_by_name.get(name, ()) if a.scope in (scope, source.scopes[""]))


def _function_checks_vendor(site: Site, source: Source) -> bool:
    """Whether the function checks the vendor anywhere; at module level, whether the statement does."""
    node = site.scope.node if site.scope.kind == "function" else site.node
    return checks_vendor(node, source, models=False) or mentions(node, ("is_cuda_alike",))
