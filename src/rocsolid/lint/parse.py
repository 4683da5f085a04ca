"""Parses a file into a `Source`, in one pass over its tree."""

import ast
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from rocsolid.lint.enclosing_blocks import CAPTURE_BLOCKS, branch_block, implied_by, make_block
from rocsolid.model.source import Assignment, Block, Scope, Site, Source, WithItem, child_nodes, full_name

# Local aliases of these are followed: `config = torch._inductor.config`.
_ALIASED_PREFIXES: Final = ("torch.", "triton.")
_LEAVING_STATEMENTS: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def read_source(text: str, *, file: str, module: str, package: bool = False) -> Source:
    """Parse a file and index it; raises SyntaxError, ValueError, RecursionError or MemoryError as the parser does."""
    tree = ast.parse(text, filename=file)
    reader = _Reader(tree, module, package=package)
    reader.body(tree.body, reader.top, None)
    return Source(
        file=file,
        module=module,
        text=text,
        tree=tree,
        aliases=reader.aliases,
        scopes=reader.scopes,
        calls=dict(reader.calls),
        assignments=reader.assignments,
        imports=reader.imports,
        with_items=reader.with_items,
        loops=reader.loops,
        conditions=reader.conditions,
        statements=reader.statements,
        branches=reader.branches,
        returns=reader.returns,
    )


class _Reader:
    """Reads a file in one pass. One is enough, because imports come before their uses."""

    def __init__(self, tree: ast.Module, module: str, *, package: bool) -> None:
        self.package = module if package else module.rpartition(".")[0]
        self.top = Scope("", "module", tree)
        self.aliases: dict[str, str] = {}
        # Imported names that a parameter or local variable of the current function shadows.
        self.shadowed: set[str] = set()
        self.scopes: dict[str, Scope] = {"": self.top}
        self.calls: defaultdict[str, list[Site]] = defaultdict(list)
        self.assignments: list[Assignment] = []
        self.imports: list[Site] = []
        self.with_items: list[WithItem] = []
        self.loops: list[Site] = []
        self.conditions: list[Site] = []
        self.statements: list[ast.expr] = []
        self.branches: list[ast.If | ast.While | ast.Assert | ast.IfExp] = []
        self.returns: list[Site] = []

    def name(self, node: ast.AST) -> str:
        """The full dotted name of an expression, with the aliases that are visible in the current function."""
        if not self.shadowed:
            return full_name(node, self.aliases)
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        shadowed = isinstance(root, ast.Name) and root.id in self.shadowed
        return full_name(node, {} if shadowed else self.aliases)

    def body(self, statements: Sequence[ast.stmt], scope: Scope, block: Block | None) -> None:
        """Read a list of statements. Those after an `assert`, or an `if` that returns, raises or leaves a loop, run under a condition."""
        block_before_capture = block
        for statement in statements:
            kind = type(statement)
            if kind is ast.Expr:
                call = statement.value  # type: ignore[attr-defined]
                self.statements.append(call)
                if type(call) is ast.Call and type(call.func) is ast.Attribute:
                    if call.func.attr == "capture_begin":
                        self.expression(call, scope, block)
                        block = make_block("with", statement, block, captured=True)
                        continue
                    if call.func.attr == "capture_end":
                        block = block_before_capture
                self.expression(call, scope, block)
                continue
            self.statement(statement, scope, block)
            if kind is ast.If and isinstance(statement.body[-1], _LEAVING_STATEMENTS):  # type: ignore[attr-defined]
                tracing, capturing = implied_by(statement.test)  # type: ignore[attr-defined]
                block = make_block(
                    "after", statement, block, "after", not_compiled=tracing > 0, not_captured=capturing > 0
                )
            elif kind is ast.Assert:
                block = make_block("after", statement, block, "after")

    def statement(self, node: ast.stmt, scope: Scope, block: Block | None) -> None:
        """One statement and everything in it."""
        read_statement = _STATEMENTS.get(type(node))
        if read_statement is not None:
            read_statement(self, node, scope, block)
            return
        for child in child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, scope, block)

    def expression(self, root: ast.AST, scope: Scope, block: Block | None) -> None:
        """Every call in an expression, and the conditions of conditional expressions."""
        stack = [root]
        while stack:
            node = stack.pop()
            kind = type(node)
            while kind is ast.Attribute:
                node = node.value  # type: ignore[attr-defined]
                kind = type(node)
            if kind is ast.Name or kind is ast.Constant:
                continue
            if kind is ast.Call:
                call: ast.Call = node  # type: ignore[assignment]
                name = self.name(call.func)
                self.calls[name.rpartition(".")[2]].append(Site(call, name, scope, block))
                stack.append(call.func)
                stack += call.args
                if call.keywords:
                    stack += [k.value for k in call.keywords]
            elif kind is ast.Lambda:
                self._lambda(node, scope)  # type: ignore[arg-type]
            elif kind is ast.IfExp:
                self._conditional_expression(node, scope, block)  # type: ignore[arg-type]
            else:
                stack += child_nodes(node)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> None:
        name = f"{scope.name}.<lambda>:{node.lineno}:{node.col_offset}".lstrip(".")
        inner = Scope(name, "lambda", node, scope, (), tuple(a.arg for a in node.args.args))
        self.scopes[name] = inner
        self.expression(node.body, inner, None)

    def _conditional_expression(self, node: ast.IfExp, scope: Scope, block: Block | None) -> None:
        self._condition(node, node.test, scope, block)
        self.expression(node.body, scope, branch_block(node, node.test, block, "body"))
        self.expression(node.orelse, scope, branch_block(node, node.test, block, "orelse"))

    def _condition(
        self, node: ast.If | ast.While | ast.Assert | ast.IfExp, test: ast.expr, scope: Scope, block: Block | None
    ) -> None:
        """A condition; in `not is_compiling() and mask.any()` the second half is not traced."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            block = branch_block(node, test, block, "body")
        self.conditions.append(Site(test, "", scope, block))
        self.branches.append(node)
        self.expression(test, scope, block)

    def function_(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, block: Block | None) -> None:
        """A function; its decorators and defaults belong to the scope around it."""
        name = f"{scope.name}.{node.name}" if scope.name else node.name
        while name in self.scopes:  # an overload, or a second definition in another branch
            name += "'"
        decorators = tuple(self._decorator(d) for d in node.decorator_list)
        arguments = node.args
        params = tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        inner = Scope(name, "function", node, scope, decorators, params, block)
        self.scopes[name] = inner
        for expression in (*node.decorator_list, *arguments.defaults, *(d for d in arguments.kw_defaults if d)):
            self.expression(expression, scope, block)
        shadowed_outside = self.shadowed
        self.shadowed = shadowed_outside | {p for p in params if p in self.aliases}
        self.body(node.body, inner, None)
        self.shadowed = shadowed_outside

    def class_(self, node: ast.ClassDef, scope: Scope, block: Block | None) -> None:
        """A class and its body."""
        name = f"{scope.name}.{node.name}" if scope.name else node.name
        while name in self.scopes:
            name += "'"
        inner = Scope(name, "class", node, scope, tuple(self._decorator(d) for d in node.decorator_list), (), block)
        self.scopes[name] = inner
        for expression in (*node.decorator_list, *node.bases):
            self.expression(expression, scope, block)
        self.body(node.body, inner, None)

    def _decorator(self, node: ast.expr) -> str:
        return self.name(node.func if isinstance(node, ast.Call) else node)

    def assign_(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, scope: Scope, block: Block | None) -> None:
        """Every target of an assignment."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                # Each name gets one element of the call's result.
                call = node.value if isinstance(node.value, ast.Call) else None
                self.assignments += [Assignment(node, t, self.name(t), call, scope, block) for t in target.elts]
                self._shadow(target.elts, scope)
                continue
            is_subscript = isinstance(target, ast.Subscript)
            name = self.name(target.value if is_subscript else target)  # type: ignore[attr-defined]
            self.assignments.append(Assignment(node, target, name, node.value, scope, block))
            if isinstance(target, ast.Name):
                value_name = self.name(node.value) if isinstance(node.value, ast.Attribute) else ""
                if value_name.startswith(_ALIASED_PREFIXES):
                    self.aliases.setdefault(target.id, value_name)
                else:
                    self._shadow([target], scope)
            elif is_subscript:
                self.expression(target.slice, scope, block)  # type: ignore[attr-defined]
        if node.value is not None:
            self.expression(node.value, scope, block)

    def _shadow(self, targets: Sequence[ast.expr], scope: Scope) -> None:
        """A name that is assigned in a function no longer refers to the import of that name."""
        if scope.kind == "function":
            names = {t.id for t in targets if isinstance(t, ast.Name) and t.id in self.aliases}
            self.shadowed = self.shadowed | names if names else self.shadowed

    def branch_(self, node: ast.If | ast.While, scope: Scope, block: Block | None) -> None:
        """An `if` or `while`, each branch in its own block; a chain of `elif` is handled in a loop to avoid recursion."""
        while True:
            self._condition(node, node.test, scope, block)
            self.body(node.body, scope, branch_block(node, node.test, block, "body"))
            if not node.orelse:
                return
            block = branch_block(node, node.test, block, "orelse")
            following = node.orelse[0]
            if len(node.orelse) > 1 or not isinstance(following, ast.If):
                self.body(node.orelse, scope, block)
                return
            node = following

    def with_(self, node: ast.With | ast.AsyncWith, scope: Scope, block: Block | None) -> None:
        """A `with`; if one of its items is a capture, its body is captured."""
        captured = False
        for item in node.items:
            expression = item.context_expr
            name = self.name(expression.func if isinstance(expression, ast.Call) else expression)
            self.with_items.append(WithItem(expression, name, scope, block, node))
            self.expression(expression, scope, block)
            captured = captured or name in CAPTURE_BLOCKS
        self.body(node.body, scope, make_block("with", node, block, captured=captured))

    def for_(self, node: ast.For | ast.AsyncFor, scope: Scope, block: Block | None) -> None:
        """A `for` loop."""
        self.loops.append(Site(node, "", scope, block))
        self.expression(node.iter, scope, block)
        self.body(node.body, scope, make_block("for", node, block))
        self.body(node.orelse, scope, block)

    def return_(self, node: ast.Return, scope: Scope, block: Block | None) -> None:
        """A `return` with a value."""
        if node.value is not None:
            self.returns.append(Site(node.value, "", scope, block))
            self.expression(node.value, scope, block)

    def match_(self, node: ast.Match, scope: Scope, block: Block | None) -> None:
        """A `match`, each case in its own block."""
        self.expression(node.subject, scope, block)
        for case in node.cases:
            self.body(case.body, scope, make_block("case", case, block))

    def assert_(self, node: ast.Assert, scope: Scope, block: Block | None) -> None:
        """An `assert`; its condition counts like that of an `if`."""
        self._condition(node, node.test, scope, block)

    def try_(self, node: ast.Try, scope: Scope, block: Block | None) -> None:
        """A `try` with its handlers."""
        self.body(node.body, scope, make_block("try", node, block))
        for handler in node.handlers:
            self.body(handler.body, scope, make_block("try", node, block, "handler"))
        self.body(node.orelse, scope, make_block("try", node, block, "orelse"))
        self.body(node.finalbody, scope, block)

    def import_(self, node: ast.Import | ast.ImportFrom, scope: Scope, block: Block | None) -> None:
        """The imported names and what they refer to."""
        self.shadowed = (
            self.shadowed - {a.asname or a.name.partition(".")[0] for a in node.names}
            if self.shadowed
            else self.shadowed
        )
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self.aliases[alias.asname] = alias.name
                else:
                    top = alias.name.partition(".")[0]
                    self.aliases.setdefault(top, top)
                self.imports.append(Site(node, alias.name, scope, block))
            return
        origin = self._origin(node)
        for alias in node.names:
            name = f"{origin}.{alias.name}" if origin else alias.name
            if alias.name != "*":
                self.aliases[alias.asname or alias.name] = name
            self.imports.append(Site(node, name, scope, block))

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        parts = parts[: len(parts) - (node.level - 1)] if node.level > 1 else parts
        return ".".join(filter(None, [*parts, node.module or ""]))


_STATEMENTS: Final[dict[type, Any]] = {
    ast.FunctionDef: _Reader.function_,
    ast.AsyncFunctionDef: _Reader.function_,
    ast.ClassDef: _Reader.class_,
    ast.Assign: _Reader.assign_,
    ast.AugAssign: _Reader.assign_,
    ast.AnnAssign: _Reader.assign_,
    ast.If: _Reader.branch_,
    ast.While: _Reader.branch_,
    ast.With: _Reader.with_,
    ast.AsyncWith: _Reader.with_,
    ast.For: _Reader.for_,
    ast.AsyncFor: _Reader.for_,
    ast.Try: _Reader.try_,
    getattr(ast, "TryStar", ast.Try): _Reader.try_,  # new in Python 3.11
    ast.Import: _Reader.import_,
    ast.ImportFrom: _Reader.import_,
    ast.Return: _Reader.return_,
    ast.Match: _Reader.match_,
    ast.Assert: _Reader.assert_,
}
