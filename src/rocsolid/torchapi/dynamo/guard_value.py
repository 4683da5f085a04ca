"""Reads what a failed Dynamo guard checks, and the value that made it fail.

Torch reports the guard with the expected value (`scale == 1.5`), but not the new value. The new value is read from the frame that
is being compiled again, without running any user code.
"""

import ast
from typing import Any, Final

_MAX_VALUE_LENGTH: Final = 60
_SCOPES: Final = ("L", "G")  # Dynamo's names for locals and globals
_PRINTED_TYPES: Final = (bool, int, float, str, type(None))


def guard_text(reason: str) -> str:
    """Return the guard in torch's reason for a recompile, without the compile id before it and the comment after it.

    Example:
        >>> guard_text("0/0: scale == 1.5     # return x * scale  # train.py:9 in f")
        'scale == 1.5'

    """
    first = reason.partition("\n")[0]
    return (first.partition(": ")[2] or first).partition("  # ")[0].strip()


def split_guard(guard: str) -> tuple[str, str]:
    """Return the expression that a guard checks and the value it expects, as text; empty strings if the guard is not a comparison.

    Example:
        >>> split_guard("G['SCALE'] == 2")
        ('SCALE', '2')

    """
    node = _comparison(guard)
    if node is None:
        return "", ""
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not isinstance(node.comparators[0], ast.Constant):
        return ast.unparse(node), "True"  # the guard checks whether two names are the same object
    expected = ast.unparse(node.comparators[0])
    return ast.unparse(node.left), f"not {expected}" if isinstance(node.ops[0], ast.IsNot) else expected


def found_value(guard: str, frame: Any) -> str:
    """Return the value in a frame that made a guard fail, as text; empty if it cannot be read."""
    node = _comparison(guard)
    if node is None or frame is None:
        return ""
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not isinstance(node.comparators[0], ast.Constant):
        return "False"
    try:
        value = _evaluate(node.left, frame)
    except (LookupError, TypeError):
        return ""
    return repr(value)[:_MAX_VALUE_LENGTH] if type(value) in _PRINTED_TYPES else type(value).__name__


def _comparison(guard: str) -> ast.Compare | None:
    try:
        node = _RemoveScopes().visit(ast.parse(guard.strip(), mode="eval")).body
    except (SyntaxError, ValueError):
        return None
    is_supported = (
        isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.Is, ast.IsNot))
    )
    return node if is_supported else None


class _RemoveScopes(ast.NodeTransformer):
    """Replaces `L['x']` and `G['x']` by `x`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        scoped = isinstance(node.value, ast.Name) and node.value.id in _SCOPES
        if scoped and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return ast.Name(node.slice.value, ast.Load())
        return node


def _evaluate(node: ast.expr, frame: Any) -> Any:
    """Return the value of a name, attribute, item or `len(...)`; raises LookupError or TypeError for anything else."""
    match node:
        case ast.Name():
            return _look_up(node.id, frame)
        case ast.Attribute():
            return vars(_evaluate(node.value, frame))[node.attr]
        case ast.Subscript(slice=ast.Constant(value=key)):
            container = _evaluate(node.value, frame)
            if type(container) in (list, tuple, dict):
                return container[key]
        case ast.Call(func=ast.Name(id="len"), args=[argument]):
            container = _evaluate(argument, frame)
            if type(container) in (list, tuple, dict, str, set):
                return len(container)
    raise LookupError


def _look_up(name: str, frame: Any) -> Any:
    for names in (frame.f_locals, frame.f_globals):
        if name in names:
            return names[name]
    # For a module, Dynamo compiles a wrapper of torch, whose closure contains the module or its bound method.
    for cell in getattr(frame, "closure", None) or ():
        content = getattr(cell, "cell_contents", None)
        owner = getattr(content, "__self__", content)
        if name == "self" and owner is not None:
            return owner
    raise LookupError(name)
