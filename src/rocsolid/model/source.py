"""A file of Python as the rules see it: every name resolved, every node with the function and the blocks around it."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

# Words in the name of a file or folder that is not for AMD.
_OTHER_VENDORS = frozenset(
    """
    nvidia cuda cutlass cutedsl cute quack nvml flashinfer tensorrt trtllm ptx blackwell hopper marlin nvfp4 nvmath tma
    sm80 sm89 sm90 sm100 sm103 sm110 sm120 musa xpu npu ascend hpu gaudi mps tpu
    """.split()  # noqa: SIM905 - a list of forty strings says the same on forty lines
)


class Confidence(IntEnum):
    """How sure it is that the code seen runs where it hurts; sorted so that `>=` reads as "at least"."""

    ANYWHERE = 0  # nothing says that it does
    REACHABLE = 1  # a function that does is called from such a place
    INSIDE = 2  # it is written in such a place, or is a hazard wherever it stands


class Region(Enum):
    """Code that is not simply run."""

    NONE = ""
    COMPILED = "compiled"  # traced by torch.compile
    CAPTURED = "captured"  # recorded into a device graph


@dataclass(frozen=True, eq=False)
class Scope:
    """A module, class, function or lambda."""

    name: str  # dotted from the module's top; the module itself is ""
    kind: str  # module, class, function or lambda
    node: ast.AST
    parent: "Scope | None" = None
    decorators: tuple[str, ...] = ()
    params: tuple[str, ...] = ()

    def outward(self) -> Iterator["Scope"]:
        """The scope itself, then those around it, the module last."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    @property
    def owner(self) -> "Scope | None":
        """The class a method belongs to, also for what is nested in the method."""
        return next((scope for scope in self.outward() if scope.kind == "class"), None)


@dataclass(frozen=True, eq=False)
class Block:
    """A `with`, `if`, `for`, `while` or `try` around a statement; `after` is what follows an `if` that leaves."""

    kind: str
    node: ast.AST
    branch: str = "body"  # body, orelse, handler, after
    parent: "Block | None" = None
    captured: bool = False  # in the body of a capture
    not_compiled: bool = False  # runs only where nothing is traced
    not_captured: bool = False  # runs only where nothing is recorded

    def outward(self) -> Iterator["Block"]:
        """The block itself, then those around it."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


class Site(NamedTuple):
    """A node, the full name it leads to, and where it stands."""

    node: ast.AST
    name: str
    scope: Scope
    block: Block | None

    @property
    def call(self) -> ast.Call:
        """The node, where it is known to be a call."""
        assert isinstance(self.node, ast.Call)  # noqa: S101 - only sites of calls are asked
        return self.node

    @property
    def line(self) -> int:
        """Where it begins."""
        return int(getattr(self.node, "lineno", 1))


class Item(NamedTuple):
    """One thing that a `with` statement enters."""

    node: ast.expr
    name: str  # of what is called
    scope: Scope
    block: Block | None
    statement: ast.With | ast.AsyncWith

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.lineno


class Write(NamedTuple):
    """One target of an assignment."""

    node: ast.stmt
    target: ast.expr
    name: str
    value: ast.expr | None
    scope: Scope
    block: Block | None

    @property
    def line(self) -> int:
        """Where the statement begins."""
        return self.node.lineno


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change to the node at a place: remove its statement, give it a keyword, or put other text in its place."""

    kind: str  # remove, keyword or replace
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What a check over source yields; it becomes a finding once its surroundings in the project are known."""

    line: int
    column: int
    subject: str
    scope: str
    region: Region = Region.NONE  # where it hurts; NONE: wherever it stands
    inside: bool = False  # it stands in such a region for all to see
    doubtful: bool = False  # worth showing only to who asks for everything
    severity: str = ""  # when it is not the rule's own
    edit: Edit | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """One parsed file."""

    file: str
    module: str
    text: str
    tree: ast.Module
    aliases: Mapping[str, str]  # what a name at the top of the file stands for
    scopes: Mapping[str, Scope]
    calls: Mapping[str, Sequence[Site]]  # by the last part of their name
    writes: Sequence[Write]
    imports: Sequence[Site]  # one for each name that is imported
    withs: Sequence[Item]
    loops: Sequence[Site]  # each `for`
    tests: Sequence[Site]  # what if, while, assert and conditional expressions decide on
    returns: Sequence[Site]

    def calls_to(self, *names: str) -> Iterator[Site]:
        """Calls of these full names."""
        for name in names:
            yield from (site for site in self.calls.get(name.rpartition(".")[2], ()) if site.name == name)

    def methods(self, *names: str) -> Iterator[Site]:
        """Calls of methods of these names, on whatever object."""
        for name in names:
            yield from (site for site in self.calls.get(name, ()) if "." in site.name)

    @property
    def for_another_vendor(self) -> bool:
        """Whether the file says by its name or its folder that it is for NVIDIA, or for yet another maker, only."""
        parts = self.file.lower().replace(".py", "").replace("_", "/").split("/")
        return not _OTHER_VENDORS.isdisjoint(parts)

    def resolve(self, node: ast.AST | None) -> str:
        """The full name a dotted expression leads to; `?` stands for what is no name."""
        return full_name(node, self.aliases)

    def in_scope(self, scope: Scope) -> Iterator[Site]:
        """Every call in a function and in what is nested in it."""
        for sites in self.calls.values():
            yield from (site for site in sites if within(site.scope, scope))


def within(scope: Scope | None, outer: Scope) -> bool:
    """Whether a scope is another or lies in it."""
    return scope is not None and any(around is outer for around in scope.outward())


def full_name(node: ast.AST | None, aliases: Mapping[str, str]) -> str:
    """The dotted name of an expression, its first part replaced by what was imported under that name."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        attributes.append(aliases.get(node.id, node.id))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        attributes.append("super()")
    else:
        attributes.append("?")
    attributes.reverse()
    return ".".join(attributes)
