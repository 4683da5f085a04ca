"""A parsed Python file, as the rules use it: resolved names, and for each node its function and enclosing blocks."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import NamedTuple

# A file or folder with one of these words in its name contains code for other vendors than AMD.
_OTHER_VENDORS = frozenset(
    """
    nvidia cuda cutlass cutedsl cute quack nvml flashinfer flashmla tensorrt trtllm ptx blackwell hopper marlin nvfp4 nvmath
    tma deepgemm cudnn nvshmem b12x sm70 sm80 sm89 sm90 sm100 sm103 sm110 sm120 sm12x fa4 musa xpu npu ascend hpu gaudi mps tpu
    metal kunlunxin cambricon mthreads metax iluvatar
    """.split()  # noqa: SIM905 - fifty quoted strings would take fifty lines
)

_FIELDS_WITHOUT_NODES = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "kind", "type_comment", "kwd_attrs"})
_FIELDS_WITH_NODES: dict[type, tuple[str, ...]] = {}


class Confidence(IntEnum):
    """How sure the linter is that a line is compiled or captured. Ordered, so that `>=` means "at least"."""

    ANYWHERE = 0  # nothing shows that the line is compiled or captured
    REACHABLE = 1  # compiled or captured code calls the function
    INSIDE = 2  # the line is in compiled or captured code, or the hazard does not depend on that


class Region(Enum):
    """Code that torch traces or records instead of only running it."""

    NONE = ""
    COMPILED = "compiled"  # traced by torch.compile
    CAPTURED = "captured"  # recorded into a CUDA or HIP graph


@dataclass(frozen=True, eq=False)
class Scope:
    """A module, class, function or lambda."""

    name: str  # dotted, relative to the module; "" for the module itself
    kind: str  # module, class, function or lambda
    node: ast.AST
    parent: "Scope | None" = None
    decorators: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    block: "Block | None" = None  # the block that contains the definition

    def self_and_parents(self) -> Iterator["Scope"]:
        """The scope itself, then its parents, ending with the module."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    @property
    def enclosing_class(self) -> "Scope | None":
        """The class that this scope is, or is nested in."""
        return next((scope for scope in self.self_and_parents() if scope.kind == "class"), None)


@dataclass(frozen=True, eq=False)
class Block:
    """A `with`, `if`, `for`, `while` or `try` around a statement.

    The kind `after` stands for the statements that follow an `if` whose body returns, raises, continues or breaks.
    """

    kind: str
    node: ast.AST
    branch: str = "body"  # body, orelse, handler, after
    parent: "Block | None" = None
    captured: bool = False  # in the body of a graph capture
    not_compiled: bool = False  # runs only when torch.compile is not tracing
    not_captured: bool = False  # runs only when no graph is being captured

    def self_and_parents(self) -> Iterator["Block"]:
        """The block itself, then the blocks around it."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


class Site(NamedTuple):
    """A node with its resolved name, function and enclosing block."""

    node: ast.AST
    name: str
    scope: Scope
    block: Block | None

    @property
    def call(self) -> ast.Call:
        """The node of a site that is known to be a call."""
        assert isinstance(self.node, ast.Call)  # noqa: S101 - used only for sites of calls
        return self.node

    @property
    def line(self) -> int:
        """The line where the node begins."""
        return int(getattr(self.node, "lineno", 1))


class WithItem(NamedTuple):
    """One context manager of a `with` statement."""

    node: ast.expr
    name: str  # resolved name of what is called
    scope: Scope
    block: Block | None
    statement: ast.With | ast.AsyncWith

    @property
    def line(self) -> int:
        """The line where the expression begins."""
        return self.node.lineno


class Assignment(NamedTuple):
    """One target of an assignment, with the assigned value where it is known."""

    node: ast.stmt
    target: ast.expr
    name: str
    value: ast.expr | None
    scope: Scope
    block: Block | None

    @property
    def line(self) -> int:
        """The line where the statement begins."""
        return self.node.lineno


@dataclass(frozen=True, kw_only=True)
class Edit:
    """An automatic fix: remove the statement, add a keyword argument, or replace `old=new` in the name that is imported or called."""

    kind: str  # remove, keyword or replace
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceMatch:
    """What a check of source code yields. The linter turns it into a finding when it knows the project's call graph.

    `column` and `end_column` count from 1. The expression begins at `column` and ends before `end_column`.
    """

    line: int
    column: int
    subject: str
    scope: str
    end_column: int = 0  # 0 if the expression continues on the next line
    region: Region = Region.NONE  # the hazard exists only in such code; NONE: in all code
    inside: bool = False  # the file itself shows that the line is in that region
    uncertain: bool = False  # reported only with --confidence anywhere
    severity: str = ""  # replaces the rule's severity
    edit: Edit | None = None
    on_rocm: bool = False  # the hazard exists only where the code runs on AMD GPUs
    guards: tuple[str, ...] = ()  # imported names in the conditions around an `on_rocm` match
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """One parsed file."""

    file: str
    module: str
    text: str
    tree: ast.Module
    aliases: Mapping[str, str]  # imported and assigned names at module level, with their full names
    scopes: Mapping[str, Scope]
    calls: Mapping[str, Sequence[Site]]  # by the last part of the called name
    assignments: Sequence[Assignment]
    imports: Sequence[Site]  # one for each imported name
    with_items: Sequence[WithItem]
    loops: Sequence[Site]  # each `for`
    conditions: Sequence[Site]  # conditions of if, while, assert and conditional expressions
    statements: Sequence[ast.expr]  # the expressions that are statements, such as calls whose result is not used
    branches: Sequence[ast.If | ast.While | ast.Assert | ast.IfExp]  # the nodes of these conditions, in the same order
    returns: Sequence[Site]

    @cached_property
    def assignments_by_name(self) -> Mapping[str, Sequence[Assignment]]:
        """The assignments to each name, in their order."""
        found: dict[str, list[Assignment]] = {}
        for assignment in self.assignments:
            found.setdefault(assignment.name, []).append(assignment)
        return found

    def calls_to(self, *names: str) -> Iterator[Site]:
        """Calls of these full names."""
        for name in names:
            yield from (site for site in self.calls.get(name.rpartition(".")[2], ()) if site.name == name)

    def methods(self, *names: str) -> Iterator[Site]:
        """Calls of methods with these names, on any object."""
        for name in names:
            yield from (site for site in self.calls.get(name, ()) if "." in site.name)

    @property
    def for_another_vendor(self) -> bool:
        """Whether a file or folder name says that the code is only for NVIDIA, or only for another vendor that is not AMD."""
        parts = self.file.lower().replace(".py", "").replace("_", "/").split("/")
        return not _OTHER_VENDORS.isdisjoint(parts)

    def resolve(self, node: ast.AST | None) -> str:
        """The full name of a dotted expression; parts that are not names become `?`."""
        return full_name(node, self.aliases)


def is_within(scope: Scope | None, outer: Scope) -> bool:
    """Whether a scope is `outer` or is nested in it."""
    return scope is not None and any(parent is outer for parent in scope.self_and_parents())


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below a node, without operators and contexts such as `Load`."""
    kind = type(node)
    fields = _FIELDS_WITH_NODES.get(kind)
    if fields is None:
        names = () if kind in (ast.Global, ast.Nonlocal) else node._fields
        fields = _FIELDS_WITH_NODES[kind] = tuple(name for name in names if name not in _FIELDS_WITHOUT_NODES)
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [v for v in value if v is not None] if None in value else value
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree in the order of `ast.walk`, in a third of its time: without operators and contexts such as `Load`."""
    nodes = [node]
    for following in nodes:
        yield following
        if following.__class__ is not ast.Name and following.__class__ is not ast.Constant:
            nodes += child_nodes(following)


def full_name(node: ast.AST | None, aliases: Mapping[str, str]) -> str:
    """The dotted name of an expression. If its first part is an imported name, that part is replaced by its full name."""
    name = ""
    while node.__class__ is ast.Attribute:
        name = f".{node.attr}{name}"
        node = node.value
    if node.__class__ is ast.Name:
        return aliases.get(node.id, node.id) + name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return "super()" + name
    return "?" + name
