"""Where source chooses between two texts by vendor."""

import ast
from collections.abc import Iterator
from typing import Final

from rocsolid.model.source import Source
from rocsolid.rules.source.syntax import asks_for_rocm, literal

MODES: Final = frozenset({"default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite"})


def mode_choices(source: Source) -> Iterator[tuple[ast.AST, str, str]]:
    """Each choice between compile modes by vendor: the node, the mode on ROCm, and the mode elsewhere."""
    if "reduce-overhead" not in source.text and "max-autotune" not in source.text:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.IfExp):
            held, failed = literal(node.body), literal(node.orelse)
        elif isinstance(node, ast.If):
            held, failed = _assigned_mode(node.body), _assigned_mode(node.orelse)
        else:
            continue
        if held not in MODES or failed not in MODES:
            continue
        asked = asks_for_rocm(node.test)
        if asked:
            on_rocm, elsewhere = (held, failed) if asked > 0 else (failed, held)
            yield node, str(on_rocm), str(elsewhere)


def _assigned_mode(body: list[ast.stmt]) -> object:
    """The mode that a branch of one statement assigns."""
    if len(body) == 1 and isinstance(body[0], ast.Assign):
        return literal(body[0].value)
    return None
