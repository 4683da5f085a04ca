"""What a failed Dynamo guard checks, and the value that it found.

Torch reports the guard with the value that it expected (`scale == 1.5`), not the new value. That one is read from the frame that
is being compiled again, without running any code of the user's.
"""

import ast
from typing import Any, Final

_LONGEST: Final = 60
_SCOPES: Final = ("L", "G")  # Dynamo's names for locals and globals
_PLAIN: Final = (bool, int, float, str, type(None))


def guard_text(reason: str) -> str:
    """The guard in torch's reason for a recompile, without the compile's id in front and the comment behind it.

    Example:
        >>> guard_text("0/0: scale == 1.5     # return x * scale  # train.py:9 in f")
        'scale == 1.5'

    """
    first = reason.partition("\n")[0]
    return (first.partition(": ")[2] or first).partition("  # ")[0].strip()


def split_guard(guard: str) -> tuple[str, str]:
    """The expression that a guard checks and the value it expects, as text; empty strings where the guard is no comparison.

    Example:
        >>> split_guard("G['SCALE'] == 2")
        ('SCALE', '2')

    """
    node = _comparison(guard)
    if node is None:
        return "", ""
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not isinstance(node.comparators[0], ast.Constant):
        return ast.unparse(node), "True"  # whether two names are one object
    expected = ast.unparse(node.comparators[0])
    return ast.unparse(node.left), f"not {expected}" if isinstance(node.ops[0], ast.IsNot) else expected


def found_value(guard: str, frame: Any) -> str:
    """The value that a failed guard found in a frame, as text; empty where it cannot be read."""
    node = _comparison(guard)
    if node is None or frame is None:
        return ""
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not isinstance(node.comparators[0], ast.Constant):
        return "False"
    try:
        value = _evaluate(node.left, frame)
    except (LookupError, TypeError):
        return ""
    return repr(value)[:_LONGEST] if type(value) in _PLAIN else type(value).__name__


def _comparison(guard: str) -> ast.Compare | None:
    try:
        node = _Unscoped().visit(ast.parse(guard.strip(), mode="eval")).body
    except (SyntaxError, ValueError):
        return None
    known = (
        isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.Is, ast.IsNot))
    )
    return node if known else None


class _Unscoped(ast.NodeTransformer):
    """`L['x']` and `G['x']` become `x`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        scoped = isinstance(node.value, ast.Name) and node.value.id in _SCOPES
        if scoped and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return ast.Name(node.slice.value, ast.Load())
        return node


def _evaluate(node: ast.expr, frame: Any) -> Any:
    """The value of names, attributes, items and lengths; raises LookupError or TypeError for anything else."""
    match node:
        case ast.Name():
            return _name(node.id, frame)
        case ast.Attribute():
            return vars(_evaluate(node.value, frame))[node.attr]
        case ast.Subscript(slice=ast.Constant(value=key)):
            held = _evaluate(node.value, frame)
            if type(held) in (list, tuple, dict):
                return held[key]
        case ast.Call(func=ast.Name(id="len"), args=[argument]):
            held = _evaluate(argument, frame)
            if type(held) in (list, tuple, dict, str, set):
                return len(held)
    raise LookupError


def _name(name: str, frame: Any) -> Any:
    for names in (frame.f_locals, frame.f_globals):
        if name in names:
            return names[name]
    # A module is compiled through a wrapper of torch's, which closes over the module or its bound method.
    for cell in getattr(frame, "closure", None) or ():
        held = getattr(cell, "cell_contents", None)
        owner = getattr(held, "__self__", held)
        if name == "self" and owner is not None:
            return owner
    raise LookupError(name)
