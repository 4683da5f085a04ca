"""Finds the Dynamo guards that failed for a call, which is why its function is compiled again."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from rocsolid.torchapi.private_api import private_name

_ENTRIES = private_name("torch._dynamo.eval_frame", "_debug_get_cache_entry_list", "2.1..")
_LOCAL: Final = re.compile(r"L\['(\w+)'\]")


@dataclass(frozen=True, kw_only=True)
class FailedGuard:
    """One Dynamo guard that does not hold for a call."""

    guard: str  # as Dynamo words it: tensor 'x' size mismatch at index 0. expected 2, actual 5
    location: str = ""  # the user's file:line that needs the guard, if torch reports it


def failed_guards(code: CodeType, f_locals: Mapping[str, Any]) -> list[FailedGuard]:
    """Return the first failed guard of each compiled version of `code`, newest version first, without repetitions.

    `f_locals` are the local variables of the frame that Dynamo is about to compile. The list is empty if this torch has no function for this.
    """
    return list(dict.fromkeys(_failures(code, f_locals))) if _ENTRIES.exists() else []


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
