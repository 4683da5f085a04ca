"""What the blocks around a statement mean for it: whether it is captured, whether it is traced."""

import ast
from typing import Final

from rocsolid.model.source import Block, full_name

TRACING: Final = frozenset(
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
CAPTURING: Final = frozenset({"is_current_stream_capturing", "is_capturing", "is_in_cuda_graph_capture"})
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
    """A block that inherits the flags of the blocks around it."""
    if parent is not None:
        captured = captured or parent.captured
        not_compiled = not_compiled or parent.not_compiled
        not_captured = not_captured or parent.not_captured
    return Block(kind, node, branch, parent, captured, not_compiled, not_captured)


def branch_block(node: ast.AST, test: ast.expr, parent: Block | None, branch: str) -> Block:
    """One branch of an `if` or `while`, with what its condition implies."""
    tracing, capturing = implied_by(test)
    wrong = 1 if branch == "orelse" else -1
    kind = "while" if isinstance(node, ast.While) else "if"
    return make_block(kind, node, parent, branch, not_compiled=tracing == wrong, not_captured=capturing == wrong)


def implied_by(test: ast.expr) -> tuple[int, int]:
    """Whether a condition is true only while tracing (1), only while not tracing (-1), or neither (0); the same for capturing."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        tracing, capturing = implied_by(test.operand)
        return -tracing, -capturing
    if isinstance(test, ast.BoolOp):
        found = [implied_by(value) for value in test.values]
        # `a and b` implies both. `a or b` implies neither, but its negation implies both negations.
        keep = -1 if isinstance(test.op, ast.And) else 1
        pick = [next((f[i] for f in found if f[i] == keep), 0) for i in (0, 1)]
        return pick[0], pick[1]
    if isinstance(test, ast.Call):
        name = full_name(test.func, {}).rpartition(".")[2]
        return int(name in TRACING), int(name in CAPTURING)
    return 0, 0
