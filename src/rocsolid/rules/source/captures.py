"""Captures of device graphs in source: where they are, what they run, what is replayed."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from rocsolid.model.source import Block, Item, Scope, Site, Source, full_name
from rocsolid.rules.source.syntax import argument, keyword

GRAPHS: Final = ("torch.cuda.graph", "torch.cuda.graphs.graph")
GRAPH_CLASSES: Final = ("torch.cuda.CUDAGraph", "torch.cuda.graphs.CUDAGraph")
GRAD_MODES: Final = {
    "torch.no_grad": "no_grad",
    "torch.inference_mode": "inference_mode",
    "torch.autograd.no_grad": "no_grad",
    "torch.enable_grad": "enable_grad",
}


class Capture(NamedTuple):
    """One `with torch.cuda.graph(...)` block."""

    site: Site  # of the call
    item: Item
    graph: str  # how the graph object is written
    pool: str

    @property
    def node(self) -> ast.With | ast.AsyncWith:
        """The statement with its body."""
        return self.item.statement

    @property
    def scope(self) -> Scope:
        """The function it stands in."""
        return self.site.scope

    def work(self) -> Iterator[ast.Call]:
        """The calls whose results its body keeps: `out = model(x)`."""
        for statement in self.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                yield statement.value

    def calls(self) -> Iterator[ast.Call]:
        """Every call in its body."""
        for statement in self.node.body:
            yield from (n for n in ast.walk(statement) if isinstance(n, ast.Call))


@lru_cache(maxsize=2)  # the rules ask one after the other about the same file
def captures(source: Source) -> tuple[Capture, ...]:
    """Every capture of a file, in the order of lines."""
    return tuple(_captures(source))


def _captures(source: Source) -> Iterator[Capture]:
    for item in sorted((i for i in source.withs if i.name in GRAPHS), key=lambda i: i.line):
        if isinstance(item.node, ast.Call):
            site = Site(item.node, item.name, item.scope, item.block)
            first, pool = argument(item.node, 0, "cuda_graph"), argument(item.node, 1, "pool")
            yield Capture(site, item, _written(first), _written(pool))


def _written(node: ast.AST | None) -> str:
    return ast.unparse(node) if node is not None else ""


def replays(source: Source) -> Iterator[Site]:
    """Every `graph.replay()`."""
    yield from (s for s in source.methods("replay") if not s.call.args and not s.call.keywords)


def grad_mode(block: Block | None, scope: Scope, source: Source) -> str:
    """The grad mode that a `with` or decorator around puts in force; empty where nothing says."""
    while block is not None:
        if isinstance(block.node, (ast.With, ast.AsyncWith)):
            for item in block.node.items:
                expression = item.context_expr
                name = source.resolve(expression.func if isinstance(expression, ast.Call) else expression)
                if name in GRAD_MODES:
                    return GRAD_MODES[name]
        block = block.parent
    outer: Scope | None = scope
    while outer is not None:
        found = next((GRAD_MODES[d] for d in outer.decorators if d in GRAD_MODES), "")
        if found:
            return found
        outer = outer.parent
    return ""


def item_grad_mode(capture: Capture, source: Source) -> str:
    """The grad mode that the capture's own `with` puts in force, beside the graph."""
    for item in capture.node.items:
        expression = item.context_expr
        name = source.resolve(expression.func if isinstance(expression, ast.Call) else expression)
        if name in GRAD_MODES:
            return GRAD_MODES[name]
    return ""


def calls_of(source: Source, name: str) -> Iterator[Site]:
    """Calls that are written exactly so, `self.model` say."""
    for site in source.calls.get(name.rpartition(".")[2], ()):
        if written(site.call.func) == name:
            yield site


def written(node: ast.AST) -> str:
    """A dotted expression as it is written; quicker than unparsing, and `?` for what is no name."""
    return full_name(node, {})


def has_stream(capture: Capture) -> bool:
    """Whether the capture is given a stream."""
    return keyword(capture.site.call, "stream") is not None or len(capture.site.call.args) > 2  # noqa: PLR2004 - graph, pool, stream
