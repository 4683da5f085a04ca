"""The helpers of parsed files."""

import ast
from pathlib import Path

from rocsolid.model.source import walk


def test_walk_has_the_order_of_ast_walk_without_operators_and_contexts() -> None:
    left_out = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    for file in (Path(ast.__file__), Path(__file__)):
        tree = ast.parse(file.read_text(encoding="utf-8"))

        assert list(walk(tree)) == [node for node in ast.walk(tree) if not isinstance(node, left_out)]
