"""Reads torch's config modules as they are in this process, without disturbing them.

`config.some_name` is not a pure read: since torch 2.12 it copies mutable defaults into the caller's context and may
warn about deprecation. So we look at the entries themselves and apply torch's own order of precedence:
alias, forcing variable, assignment, moving variable, default.
"""

import gc
import sys
from collections.abc import Iterator
from contextvars import Context, ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.source import CONFIG_FILES, alias_id
from rocsolid.torchapi.private_api import door

_UNSET = door("torch.utils._config_module", "_UNSET_SENTINEL", "2.6..")
CONFIG_CLASS = door("torch.utils._config_module", "ConfigModule", "2.0..")
_INDUCTOR_ENTRIES = door("torch._inductor.config", "_config", "2.0..")
_DYNAMO_ENTRIES = door("torch._dynamo.config", "_config", "2.0..")

MODULES: Final = {owner: "torch." + file.removesuffix(".py").replace("/", ".") for owner, file in CONFIG_FILES.items()}
OVERRIDE_ENTRIES: Final = {  # the entries that hold TORCH_COMPILE_OVERRIDE_*, since 2.11
    "inductor": "dynamo.debug_inductor_config_override",
    "dynamo": "dynamo.debug_dynamo_config_override",
}


@dataclass(frozen=True, kw_only=True)
class LiveEntry:
    """One entry of a loaded config module, layer by layer."""

    value: object
    default: object
    assigned: bool = False
    forced: bool = False
    moved: bool = False  # by a variable torch knows as moving the default
    in_new_thread: object = None
    alias: str = ""


def loaded() -> dict[str, ModuleType]:
    """The config modules this process has already imported, by owner."""
    return {owner: sys.modules[name] for owner, name in MODULES.items() if name in sys.modules}


def read(modules: dict[str, ModuleType]) -> dict[str, LiveEntry]:
    """Every entry of the given modules by setting id; aliases show the entry they stand for."""
    unset = _UNSET.reach()
    entries = {
        f"{owner}.{name}": entry for owner, module in modules.items() for name, entry in vars(module)["_config"].items()
    }
    found = {}
    for setting_id, entry in entries.items():
        alias = str(getattr(entry, "alias", None) or "")
        target = entries.get(alias_id(alias)) if alias else entry
        if target is not None:
            found[setting_id] = _view(target, unset, alias)
    return found


def _view(entry: Any, unset: object, alias: str) -> LiveEntry:
    override = read_override(entry)
    forced = getattr(entry, "env_value_force", unset)
    moved = getattr(entry, "env_value_default", unset)
    layers = [layer for layer in (forced, override, moved) if layer is not unset]
    value = layers[0] if layers else entry.default
    # Only an assignment that changes something is one: reading a list or dict leaves an equal copy behind.
    assigned = override is not unset and override != entry.default
    elsewhere = value
    if isinstance(entry.user_override, ContextVar):
        rest = [layer for layer in (forced, moved) if layer is not unset]
        elsewhere = rest[0] if rest else entry.default
    return LiveEntry(
        value=value,
        default=entry.default,
        assigned=assigned,
        forced=forced is not unset,
        moved=moved is not unset,
        in_new_thread=elsewhere,
        alias=alias,
    )


def read_override(entry: Any) -> object:
    """What this context assigned to an entry; torch's own mark for "nothing" when it did not."""
    held = entry.user_override
    return held.get() if isinstance(held, ContextVar) else held


def write_override(entry: Any, value: object) -> None:
    """Assign to an entry in this context, past every check; torch's mark for "nothing" takes an assignment back."""
    if isinstance(entry.user_override, ContextVar):
        entry.user_override.set(value)
    else:
        entry.user_override = value


def overrides_elsewhere(modules: dict[str, ModuleType]) -> Iterator[tuple[str, object]]:
    """Assignments that other threads or tasks of this process made and this one cannot see (torch 2.12 and later).

    A value lives in the context that assigned it. Python keeps no list of contexts, but its garbage collector
    knows them all.
    """
    unset = _UNSET.reach()
    held = {
        f"{owner}.{name}": entry
        for owner, module in modules.items()
        for name, entry in vars(module)["_config"].items()
        if isinstance(getattr(entry, "user_override", None), ContextVar)
    }
    if not held:
        return
    contexts = [found for found in gc.get_objects() if type(found) is Context]
    for setting_id, entry in held.items():
        here = entry.user_override.get()
        for context in contexts:
            there = context.get(entry.user_override, unset)
            if there is not unset and there not in (here, entry.default):
                yield setting_id, there
                break
