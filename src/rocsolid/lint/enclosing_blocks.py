"""Decides from the enclosing blocks of a statement whether it is captured and whether it is traced."""

import ast
from typing import Final

from rocsolid.model.source import Block, full_name

TRACING_CHECKS: Final = frozenset(
    {
        "is_compiling",
        "is_dynamo_compiling",
        "is_torchdynamo_compiling",
        "is_torch_compiling",
        "is_exporting",
        "is_torchdynamo_exporting",
        "is_tracing",
        "is_fx_tracing",
        "is_torch_fx_proxy",
        "is_in_torch_compile",
    }
)
CAPTURE_CHECKS: Final = frozenset({"is_current_stream_capturing", "is_capturing", "is_in_cuda_graph_capture"})
CAPTURE_BLOCKS: Final = frozenset({"torch.cuda.graph", "torch.cuda.graphs.graph"})


def make_block(
    kind: str,
    node: ast.AST,
    parent: Block | None,
    branch: str = "body",
    *,
    captured: bool = False,
    not_compiled: bool = False,
    not_captured: bool = False,
) -> Block:
    """Return a block that inherits the flags of the enclosing blocks."""
    if parent is not None:
        captured = captured or parent.captured
        not_compiled = not_compiled or parent.not_compiled
        not_captured = not_captured or parent.not_captured
    return Block(kind, node, branch, parent, captured, not_compiled, not_captured)


def branch_block(node: ast.AST, test: ast.expr, parent: Block | None, branch: str) -> Block:
    """Return the block of one branch of an `if` or `while`, with the flags that its condition implies."""
    tracing, capturing = implied_by(test)
    # The result of `implied_by` with which this branch is not traced or not captured.
    excluded = 1 if branch == "orelse" else -1
    kind = "while" if isinstance(node, ast.While) else "if"
    return make_block(kind, node, parent, branch, not_compiled=tracing == excluded, not_captured=capturing == excluded)


def implied_by(test: ast.expr) -> tuple[int, int]:
    """Return two numbers, for tracing and for capturing.

    1: the condition is true only while tracing (capturing); -1: only while not tracing (capturing); 0: neither is known.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        tracing, capturing = implied_by(test.operand)
        return -tracing, -capturing
    if isinstance(test, ast.BoolOp):
        implied = [implied_by(value) for value in test.values]
        # `a and b` implies both. `a or b` implies neither, but its negation implies both negations.
        keep = -1 if isinstance(test.op, ast.And) else 1
        tracing, capturing = (next((pair[i] for pair in implied if pair[i] == keep), 0) for i in (0, 1))
        return tracing, capturing
    if isinstance(test, ast.Call):
        name = full_name(test.func, {}).rpartition(".")[2]
        return int(name in TRACING_CHECKS), int(name in CAPTURE_CHECKS)
    return 0, 0
