"""The Dynamo guards that failed, so that a function is compiled again: which ones, what they check, and the values they found.

Torch reports a failed guard with the value that it expected (`scale == 1.5`), not with the new value. The new value is read from
the frame that is being compiled again, without running the user's code.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from rocsolid.torchapi.private_api import private_name

_ENTRIES = private_name(
    "torch._dynamo.eval_frame",
    "_debug_get_cache_entry_list",
    "2.1..",
    without="rs.compile: the message about a forbidden recompile names no guard",
)
_LOCAL: Final = re.compile(r"L\['(\w+)'\]")
_MAX_VALUE_CHARACTERS: Final = 60
_SCOPES: Final = ("L", "G")  # Dynamo's names for locals and globals
_PLAIN_TYPES: Final = (bool, int, float, str, type(None))


@dataclass(frozen=True, kw_only=True)
class FailedGuard:
    """One Dynamo guard that does not hold for a call."""

    guard: str  # as Dynamo words it: tensor 'x' size mismatch at index 0. expected 2, actual 5
    location: str = ""  # the user's file:line that needs the guard, if torch reports it


def failed_guards(code: CodeType, f_locals: Mapping[str, Any]) -> list[FailedGuard]:
    """Return the first failed guard of each compiled version of `code`, newest version first, without repetitions.

    `f_locals` are the local variables of the frame that Dynamo is about to compile. The list is empty if this torch has no function for this.
    """
    return list(dict.fromkeys(_failures(code, f_locals))) if _ENTRIES.find() is not None else []


def _failures(code: CodeType, f_locals: Mapping[str, Any]) -> Iterator[FailedGuard]:
    for entry in _ENTRIES.get()(code):
        check = getattr(getattr(entry, "guard_manager", None), "check_verbose", None)
        if check is None:  # an invalidated entry has no guards
            continue
        info = check(f_locals)
        parts = [] if info.result else list(info.verbose_code_parts)
        failed = next((part for part in parts if len(parts) == 1 or _is_false(part, entry, f_locals)), "")
        if failed:
            stack = list(getattr(info, "user_stack", None) or ())
            yield FailedGuard(
                guard=_LOCAL.sub(r"\1", failed.partition("  #")[0].strip()),
                location=f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "",
            )


def _is_false(part: str, entry: Any, f_locals: Mapping[str, Any]) -> bool:
    """Return whether one expression of a combined guard is false."""
    manager = entry.guard_manager
    try:
        scope = {"L": f_locals, "G": manager.global_scope["G"], **(manager.closure_vars or {})}
        return eval(part, dict(manager.global_scope), scope) is False  # noqa: S307 - Dynamo's own expression
    except Exception:  # noqa: BLE001 - an expression that needs more than this scope is skipped
        return False


def guard_text(reason: str) -> str:
    """Return the guard in torch's reason for a recompile, without the compile's id before it and the comment after it.

    Example:
        >>> guard_text("0/0: scale == 1.5     # return x * scale  # train.py:9 in f")
        'scale == 1.5'

    """
    first = reason.partition("\n")[0]
    return (first.partition(": ")[2] or first).partition("  # ")[0].strip()


def split_guard(guard: str) -> tuple[str, str]:
    """Return the expression that a guard checks and the value it expects, as text; empty strings if the guard is no comparison.

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
    """Return the value that a failed guard found in a frame, as text; empty if it cannot be read."""
    node = _comparison(guard)
    if node is None or frame is None:
        return ""
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not isinstance(node.comparators[0], ast.Constant):
        return "False"
    try:
        value = _evaluate(node.left, frame)
    except (LookupError, TypeError):
        return ""
    return repr(value)[:_MAX_VALUE_CHARACTERS] if type(value) in _PLAIN_TYPES else type(value).__name__


def _comparison(guard: str) -> ast.Compare | None:
    try:
        node = _RemoveScopes().visit(ast.parse(guard.strip(), mode="eval")).body
    except (SyntaxError, ValueError):
        return None
    supported = (
        isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.Is, ast.IsNot))
    )
    return node if supported else None


class _RemoveScopes(ast.NodeTransformer):
    """Replaces `L['x']` and `G['x']` by `x`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        scoped = isinstance(node.value, ast.Name) and node.value.id in _SCOPES
        if scoped and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return ast.Name(node.slice.value, ast.Load())
        return node


def _evaluate(node: ast.expr, frame: Any) -> Any:
    """Return the value of a name, attribute, item or length; raises LookupError or TypeError for anything else."""
    match node:
        case ast.Name():
            return _named_value(node.id, frame)
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


def _named_value(name: str, frame: Any) -> Any:
    for names in (frame.f_locals, frame.f_globals):
        if name in names:
            return names[name]
    # Dynamo compiles a module through a wrapper function of torch, whose closure contains the module or its bound method.
    for cell in getattr(frame, "closure", None) or ():
        value = getattr(cell, "cell_contents", None)
        module = getattr(value, "__self__", value)
        if name == "self" and module is not None:
            return module
    raise LookupError(name)
