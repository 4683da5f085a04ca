"""Find graph captures and replays in source code, and look up what HIP and CUDA do with the calls in them (see `catalog.capture_rules`)."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from rocsolid.catalog.capture_rules import capture_rule, describe_behavior
from rocsolid.model.source import Block, Region, Scope, Site, Source, SourceMatch, WithItem, full_name, walk
from rocsolid.rules.source.syntax import argument, match_in_region

GRAPH_CONTEXTS: Final = ("torch.cuda.graph", "torch.cuda.graphs.graph")
GRAD_MODES: Final = {
    "torch.no_grad": "no_grad",
    "torch.inference_mode": "inference_mode",
    "torch.autograd.no_grad": "no_grad",
    "torch.enable_grad": "enable_grad",
}
# The capture rule for reading a tensor's value: the copy to the CPU waits for the captured stream.
VALUE_READ_RULE: Final = "stream-synchronize"


class Capture(NamedTuple):
    """One `with torch.cuda.graph(...)` block."""

    site: Site  # of the call of torch.cuda.graph
    item: WithItem
    graph: str  # source text of the graph argument
    pool: str  # source text of the pool argument

    @property
    def node(self) -> ast.With | ast.AsyncWith:
        """The `with` statement."""
        return self.item.statement

    @property
    def scope(self) -> Scope:
        """The function that contains the capture."""
        return self.site.scope

    def result_calls(self) -> Iterator[ast.Call]:
        """The calls in the body whose result is assigned: `out = model(x)`."""
        for statement in self.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                yield statement.value

    def calls(self) -> Iterator[ast.Call]:
        """Every call in the body."""
        for statement in self.node.body:
            yield from (n for n in walk(statement) if isinstance(n, ast.Call))


@lru_cache(maxsize=2)  # several rules check the same file one after the other
def captures(source: Source) -> tuple[Capture, ...]:
    """Every capture in a file, in line order."""
    return tuple(_captures(source))


def _captures(source: Source) -> Iterator[Capture]:
    for item in sorted((i for i in source.with_items if i.name in GRAPH_CONTEXTS), key=lambda i: i.line):
        if isinstance(item.node, ast.Call):
            site = Site(item.node, item.name, item.scope, item.block)
            graph, pool = argument(item.node, 0, "cuda_graph"), argument(item.node, 1, "pool")
            yield Capture(site, item, _unparse(graph), _unparse(pool))


def _unparse(node: ast.AST | None) -> str:
    return ast.unparse(node) if node is not None else ""


def replays(source: Source) -> Iterator[Site]:
    """Every `graph.replay()`."""
    yield from (s for s in source.methods("replay") if not s.call.args and not s.call.keywords)


def match_in_capture(site: Site, source: Source, subject: str = "", **facts: str) -> Iterator[SourceMatch]:
    """A match that counts only in captured code.

    Yields nothing in a function that captures or replays a graph, except in the block that is captured: such a function is not
    captured itself.
    """
    if site.scope not in _capturing_scopes(source) or (site.block is not None and site.block.captured):
        yield from match_in_region(site, Region.CAPTURED, subject, **facts)


@lru_cache(maxsize=2)
def _capturing_scopes(source: Source) -> frozenset[Scope]:
    contexts = (item.scope for item in source.with_items if item.name in GRAPH_CONTEXTS)
    return frozenset(
        (*contexts, *(s.scope for s in source.methods("capture_begin")), *(s.scope for s in replays(source)))
    )


def grad_mode(block: Block | None, scope: Scope, source: Source) -> str:
    """The grad mode set by an enclosing `with` or decorator; empty if there is none."""
    while block is not None:
        if isinstance(block.node, (ast.With, ast.AsyncWith)) and (mode := _mode_of_items(block.node, source)):
            return mode
        block = block.parent
    for outer in scope.self_and_parents():
        if mode := next((GRAD_MODES[d] for d in outer.decorators if d in GRAD_MODES), ""):
            return mode
    return ""


def grad_mode_of_statement(capture: Capture, source: Source) -> str:
    """The grad mode set in the same `with` statement as the capture; empty if there is none."""
    return _mode_of_items(capture.node, source)


def _mode_of_items(statement: ast.With | ast.AsyncWith, source: Source) -> str:
    for item in statement.items:
        expression = item.context_expr
        name = source.resolve(expression.func if isinstance(expression, ast.Call) else expression)
        if name in GRAD_MODES:
            return GRAD_MODES[name]
    return ""


def calls_written_as(source: Source, name: str) -> Iterator[Site]:
    """Calls whose function is spelled exactly like this in the source, for example `self.model`."""
    for site in source.calls.get(name.rpartition(".")[2], ()):
        if dotted_name(site.call.func) == name:
            yield site


def dotted_name(node: ast.AST) -> str:
    """A dotted expression as it is spelled; `?` for parts that are not names. Faster than `ast.unparse`."""
    return full_name(node, {})


def capture_rule_id(site: Site) -> str:
    """The id of the capture rule for a `synchronize()` or `query()` call.

    The source does not show whether an event was recorded inside or before the capture. For `synchronize()` we assume inside.
    For `query()` we assume before, because that is where the runtimes differ.
    """
    owner, _, method = site.name.rpartition(".")
    owner = owner.rpartition(".")[2].lower()
    if method == "query":
        return "event-query-old" if "event" in owner else "stream-query"
    if "event" in owner:
        return "event-synchronize-captured"
    return VALUE_READ_RULE if "stream" in owner else "device-synchronize"


def capture_facts(rule_id: str) -> dict[str, str]:
    """Facts for a finding: the runtime call of a capture rule, and what each runtime does with it."""
    return {
        "runtime_call": capture_rule(rule_id).call,
        "runtime_call_and_its_behavior": describe_behavior(rule_id),
    }
