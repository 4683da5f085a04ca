"""Rewrites the user's own line so that it no longer breaks the graph, and checks the result.

A rewrite is kept only if it was applied to the running function, its result is the same, this break is gone and no other one came
instead. Where nothing of the function was compiled because of the break, others may come to light. Nothing is written to a file.
"""

import ast
import contextlib
import copy
import gc
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.model.compile_log import BreakReport, GraphBreak, LineFix
from rocsolid.numerics import Tolerance, compare, result_leaves
from rocsolid.observe.breaks import find_breaks
from rocsolid.torchapi.dynamo.compiled_function import original_function
from rocsolid.torchapi.pytree import Leaf

_MAX_CHECKED: Final = 10  # breaks; each check compiles the function once more
_REDUCED: Final = ("sum", "any", "count_nonzero")  # what they return does not change if elements are 0
_TO_NUMBER: Final = ("float", "int", "bool")
_MATH: Final = ("sqrt", "exp", "log", "floor", "ceil", "sin", "cos", "tanh", "isnan", "isinf", "log2", "log10")
_WITHOUT_RESULT: Final = ("print", "warnings.warn", "torch._dynamo.graph_break", "sys.stdout.write", "sys.stdout.flush")
_LOGGERS: Final = ("logger", "logging", "log", "_logger", "LOGGER", "LOG", "_log")


_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class _Edit:
    """A range of the source, and the text instead of it."""

    start: int
    end: int
    text: str


def with_fixes(
    report: BreakReport,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    as_is: bool = False,
) -> BreakReport:
    """Return the report in which each break that a rewrite of its line removes has this rewrite as its fix."""
    function = function if as_is else original_function(function)
    checked = [found for found in report.breaks if not found.fatal][:_MAX_CHECKED]
    fixes = {}
    for found in checked:
        fix = _checked_fix(found, report, (function, args, dict(kwargs)), as_is=as_is)
        if fix is not None:
            fixes[found.location] = fix
    return replace(report, breaks=tuple(replace(found, line_fix=fixes.get(found.location)) for found in report.breaks))


def rewrite(source: str, line: int) -> Iterator[tuple[LineFix, str]]:
    """Yield possible rewrites of a line, as the changed lines and the whole new source."""
    tree = ast.parse(source)
    offsets = _Offsets(source)
    torch = next(
        (
            a.asname or "torch"
            for n in ast.walk(tree)
            if isinstance(n, ast.Import)
            for a in n.names
            if a.name == "torch"
        ),
        "",
    )
    statement, follower = _statement_at(tree, line)
    if statement is None or not torch:
        return
    writer = _Writer(source=source, offsets=offsets, torch=torch)
    for edits in writer.rewrites(statement, follower):
        start, end = min(e.start for e in edits), max(e.end for e in edits)
        first, last = source.rfind("\n", 0, start) + 1, source.find("\n", end)
        last = len(source) if last < 0 else last
        new = source
        shift = 0
        for edit in sorted(edits, key=lambda e: e.start):
            new = new[: edit.start + shift] + edit.text + new[edit.end + shift :]
            shift += len(edit.text) - (edit.end - edit.start)
        before, after = source[first:last], new[first : last + shift]
        if before != after:
            yield LineFix(before=_dedented(before), after=_dedented(after)), new


def _checked_fix(found: GraphBreak, report: BreakReport, call: _Call, *, as_is: bool) -> LineFix | None:
    file, _, line = found.location.rpartition(":")
    try:
        source = Path(file).read_text(encoding="utf-8")
        candidates = list(rewrite(source, int(line)))
        expected = _run(call)
    except Exception:  # noqa: BLE001 - no source, or a function that cannot be called again: there is no checked fix
        return None
    for fix, new_source in candidates:
        try:
            with _applied(file, source, new_source, int(line)) as applied:
                if not applied or not compare(expected, _run(call), Tolerance()).equal:
                    continue
                function, args, kwargs = _copied(call)
                again = find_breaks(function, args, kwargs, backend="eager", as_is=as_is)
        except Exception:  # noqa: BLE001, S112 - the rewrite does not work here
            continue
        is_gone = found.location not in {b.location for b in again.breaks}
        if is_gone and (len(again.breaks) < len(report.breaks) or (found.frame_skipped and not _is_moved(fix, again))):
            return fix
    return None


def _is_moved(fix: LineFix, again: BreakReport) -> bool:
    """Return whether a line that breaks the graph now reads what the rewritten line assigns, which became a tensor."""
    match ast.parse(fix.before).body:
        case [ast.Assign(targets=[ast.Name(id=name)])]:
            return any(re.search(rf"\b{name}\b", found.code.text) for found in again.breaks)
    return False


def _copied(call: _Call) -> _Call:
    copied: _Call = copy.deepcopy(call)
    return copied


def _run(call: _Call) -> tuple[Leaf, ...]:
    """Call a copy of the function in eager, with the same random numbers each time; returns its results and changed arguments."""
    import torch

    function, args, kwargs = _copied(call)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        result = function(*args, **kwargs)
    return result_leaves((result, args, kwargs))


@contextlib.contextmanager
def _applied(file: str, source: str, new_source: str, line: int) -> Iterator[bool]:
    """Give the functions that contain the line their new code, and restore it afterwards; yields whether there is one."""
    paths = {code: path for path, code in _codes(compile(source, file, "exec"))}
    new = dict(_codes(compile(new_source, file, "exec")))
    inside = [path for code, path in paths.items() if line in {number for *_, number in code.co_lines()}]
    innermost = max(inside, key=len, default=())
    first_line = next((code.co_firstlineno for code, path in paths.items() if path == innermost), 0)
    functions = [
        value
        for value in gc.get_objects()
        if type(value) is types.FunctionType  # isinstance would run code of the objects
        and value.__code__.co_filename == file
        and value.__code__.co_firstlineno == first_line
        and value.__code__.co_name == (innermost or ("",))[-1][0]
    ]
    replaced = [
        (f, f.__code__) for f in functions if innermost in new and f.__code__.co_freevars == new[innermost].co_freevars
    ]
    try:
        for function, _ in replaced:
            function.__code__ = new[innermost]
        yield bool(replaced)
    finally:
        for function, code in replaced:
            function.__code__ = code


def _codes(
    code: types.CodeType, path: tuple[tuple[str, int], ...] = ()
) -> Iterator[tuple[tuple[tuple[str, int], ...], types.CodeType]]:
    """Yield every function inside a code object, with the names that lead to it; functions of one name are numbered."""
    seen: dict[str, int] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            number = seen[constant.co_name] = seen.get(constant.co_name, -1) + 1
            inner = (*path, (constant.co_name, number))
            yield inner, constant
            yield from _codes(constant, inner)


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """Writes the rewrites of one statement."""

    source: str
    offsets: "_Offsets"
    torch: str

    def rewrites(self, statement: ast.stmt, follower: ast.stmt | None) -> Iterator[list[_Edit]]:
        if isinstance(statement, ast.If):
            yield from self._branch(statement, follower)
            if not statement.orelse and all(
                isinstance(inner, ast.Expr) and self._is_without_result(inner.value) for inner in statement.body
            ):
                yield [self._edit(statement, "pass")]
        if isinstance(statement, ast.Expr) and self._is_without_result(statement.value):
            yield [self._edit(statement, "pass")]
        if isinstance(statement, ast.Assert) and statement.msg is not None:
            yield [self._edit(statement, f"assert {self.text(statement.test)}")]
        header = statement.test if isinstance(statement, (ast.If, ast.While)) else statement
        for group in (self._selections, self._values, self._conditions):
            edits = list(group(header))
            if edits:
                yield edits
        both = [*self._selections(header), *self._values(header)]
        if len(both) > 1 and not any(a is not b and a.start <= b.start < a.end for a in both for b in both):
            yield both

    def text(self, node: ast.expr) -> str:
        """The source of an expression."""
        return self.source[slice(*self.offsets.of(node))]

    def condition(self, node: ast.expr) -> str:
        """A condition as a tensor: without `.item()` and `bool()`, with `&` and `|` for `and` and `or`."""
        match node:
            case ast.BoolOp(op=op, values=values):
                sign = " & " if isinstance(op, ast.And) else " | "
                return sign.join(f"({self.condition(value)})" for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"~({self.condition(operand)})"
            case ast.Call(func=ast.Attribute(attr="item", value=value), args=[]):
                return self.condition(value)
            case ast.Call(func=ast.Name(id="bool"), args=[value]):
                return self.condition(value)
            case ast.Call(func=ast.Attribute(attr="equal"), args=[a, b]):
                return f"({self.text(a)} == {self.text(b)}).all()"
            case ast.Call(func=ast.Attribute(attr="allclose"), args=[a, b]):
                return f"{self.torch}.isclose({self.text(a)}, {self.text(b)}).all()"
            case ast.Compare(left=left, comparators=[right]):
                between = self.source[self.offsets.of(left)[1] : self.offsets.of(right)[0]]
                return f"{self.condition(left)}{between}{self.condition(right)}"
        return self.text(node)

    def _where(self, test: ast.expr, a: str, b: str) -> str:
        return f"{self.torch}.where({self.condition(test)}, {a}, {b})"

    def _branch(self, node: ast.If, follower: ast.stmt | None) -> Iterator[list[_Edit]]:
        """`if c: y = a else: y = b`, with or without `else`, and the same with `return`."""
        match node.body, node.orelse, follower:
            case [ast.Return(value=ast.expr() as a)], [ast.Return(value=ast.expr() as b)], _:
                yield [self._edit(node, f"return {self._where(node.test, self.text(a), self.text(b))}")]
            case [ast.Return(value=ast.expr() as a)], [], ast.Return(value=ast.expr() as b):
                start, end = self.offsets.of(node)[0], self.offsets.of(follower)[1]
                yield [_Edit(start=start, end=end, text=f"return {self._where(node.test, self.text(a), self.text(b))}")]
            case body, orelse, _:
                taken, otherwise = self._assigned(body), self._assigned(orelse)
                if taken and (not orelse or otherwise) and (otherwise or not orelse):
                    names = list(dict.fromkeys([*taken, *(otherwise or {})]))
                    indent = " " * node.col_offset
                    lines = [
                        f"{n} = {self._where(node.test, taken.get(n, n), (otherwise or {}).get(n, n))}" for n in names
                    ]
                    yield [self._edit(node, f"\n{indent}".join(lines))]

    def _assigned(self, body: list[ast.stmt]) -> dict[str, str]:
        """The values of a block of assignments; empty if it contains anything else."""
        found: dict[str, str] = {}
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                    found[self.text(target)] = self.text(value)
                case ast.AugAssign(target=ast.Name() | ast.Attribute() as target, op=op, value=value):
                    sign = _OPERATORS.get(type(op), "")
                    if not sign:
                        return {}
                    found[self.text(target)] = f"{self.text(target)} {sign} {_in_brackets(self.text(value), value)}"
                case _:
                    return {}
        return found

    def _selections(self, scope: ast.AST) -> Iterator[_Edit]:
        """`a if c else b`, `x[mask].sum()`, `torch.masked_select(x, mask).sum()`."""
        for node in _outermost(scope):
            match node:
                case ast.IfExp(test=test, body=body, orelse=orelse):
                    yield self._edit(node, self._where(test, self.text(body), self.text(orelse)))
                case ast.Call(
                    func=ast.Attribute(attr=attr, value=ast.Subscript(value=x, slice=mask) as part), args=[]
                ) if attr in _REDUCED:
                    yield self._edit(part, f"{self.torch}.where({self.text(mask)}, {self.text(x)}, 0)")
                case ast.Call(
                    func=ast.Attribute(
                        attr=attr,
                        value=ast.Call(func=ast.Attribute(attr="masked_select", value=owner), args=given) as part,
                    ),
                    args=[],
                ) if attr in _REDUCED:
                    x, mask = given if len(given) == 2 else (owner, given[0])  # noqa: PLR2004 - function or method
                    yield self._edit(part, f"{self.torch}.where({self.text(mask)}, {self.text(x)}, 0)")

    def _values(self, scope: ast.AST) -> Iterator[_Edit]:
        """Expressions that take a value to the CPU, and can compute with the tensor instead."""
        for node in _outermost(scope):
            match node:
                case ast.Call(
                    func=ast.Name(id="sum"), args=[ast.Call(func=ast.Attribute(attr="tolist", value=x), args=[])]
                ):
                    yield self._edit(node, f"{self._operand(x)}.sum()")
                case ast.Call(func=ast.Attribute(attr="item", value=x), args=[]):
                    yield self._edit(node, self._operand(x))
                case ast.Call(func=ast.Name(id=name), args=[x]) if name in _TO_NUMBER:
                    number = (
                        x.func.value
                        if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr == "item"
                        else x
                    )
                    yield self._edit(node, _in_brackets(self.text(number), number))
                case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="math"))) if name in _MATH:
                    yield self._edit(node.func, f"{self.torch}.{name}")
                case ast.Call(func=ast.Attribute(attr="deepcopy", value=ast.Name(id="copy")), args=[x]):
                    yield self._edit(node, f"{self._operand(x)}.clone()")

    def _conditions(self, scope: ast.AST) -> Iterator[_Edit]:
        """`and` and `or` between tensors, `torch.equal`, `torch.allclose`."""
        for node in _outermost(scope):
            match node:
                case ast.BoolOp() | ast.Call(func=ast.Attribute(attr="equal" | "allclose")):
                    if (text := self.condition(node)) != self.text(node):
                        yield self._edit(node, text)

    def _is_without_result(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = ast.unparse(node.func)
        return name in _WITHOUT_RESULT or (name.partition(".")[0] in _LOGGERS and "." in name)

    def _operand(self, node: ast.expr) -> str:
        return _in_brackets(self.text(node), node)

    def _edit(self, node: ast.AST, text: str) -> _Edit:
        start, end = self.offsets.of(node)
        return _Edit(start=start, end=end, text=text)


_OPERATORS: Final[dict[type[ast.operator], str]] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _in_brackets(text: str, node: ast.expr) -> str:
    simple = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
    return text if isinstance(node, simple) else f"({text})"


def _outermost(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without the bodies of compound statements and of functions."""
    stack: list[ast.AST] = [scope]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.IfExp, ast.Lambda, ast.FunctionDef)):
            stack += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _statement_at(tree: ast.Module, line: int) -> tuple[ast.stmt | None, ast.stmt | None]:
    """The innermost statement on a line, and the one that follows it in the same block."""
    best: tuple[ast.stmt | None, ast.stmt | None] = (None, None)
    for parent in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(parent, block, None)
            if not isinstance(statements, list):
                continue
            for statement, following in zip(statements, [*statements[1:], None], strict=False):
                if (
                    isinstance(statement, ast.stmt)
                    and statement.lineno <= line <= (statement.end_lineno or 0)
                    and (best[0] is None or statement.lineno >= best[0].lineno)
                ):
                    best = (statement, following)
    return best


class _Offsets:
    """Offsets in the source of an AST's positions, which count UTF-8 bytes in a line."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for text in self._lines:
            self._starts.append(self._starts[-1] + len(text))

    def of(self, node: Any) -> tuple[int, int]:
        """Start and end of a node."""
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode(errors="replace"))


def _dedented(text: str) -> str:
    return textwrap.dedent(text).strip("\n")
