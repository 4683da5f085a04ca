"""Reads the current values of torch's config modules in this process, without changing them.

Reading `config.some_name` has side effects: since torch 2.12 it copies mutable defaults into the caller's context, and it may print a
deprecation warning. So this module reads the entry objects and applies torch's own order of precedence: alias,
forcing variable (`env_name_force`), assignment, default variable (`env_name_default`), default.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.source import CONFIG_FILES, alias_id
from rocsolid.torchapi.private_api import private_name

CONFIG_MACHINERY: Final = "torch.utils._config_module"
_UNREADABLE = "rocsolid probe --live, rs.guard, rs.apply: values are assigned, not pinned, and what set them is unknown"
UNSET = private_name(CONFIG_MACHINERY, "_UNSET_SENTINEL", "2.6..", without=_UNREADABLE)
_ENTRIES = private_name(CONFIG_MACHINERY, "ConfigModule._config", "2.6..", of_instances=True, without=_UNREADABLE)
_OVERRIDE = private_name(
    CONFIG_MACHINERY, "_ConfigEntry.user_override", "2.6..", of_instances=True, without=_UNREADABLE
)

MODULES: Final = {owner: "torch." + file.removesuffix(".py").replace("/", ".") for owner, file in CONFIG_FILES.items()}
OVERRIDE_ENTRIES: Final = {  # the entries that hold TORCH_COMPILE_OVERRIDE_*, since 2.11
    "inductor": "dynamo.debug_inductor_config_override",
    "dynamo": "dynamo.debug_dynamo_config_override",
}


@dataclass(frozen=True, kw_only=True)
class LiveEntry:
    """The value of one entry of a loaded config module, and the layers that it comes from."""

    value: object
    default: object
    assigned: bool = False
    forced: bool = False
    from_variable: bool = False  # a variable (`env_name_default`) replaces the default
    in_new_thread: object = None  # the value that a new thread would read
    alias: str = ""


def imported_modules() -> dict[str, ModuleType]:
    """Return the config modules that this process has imported, by short name such as `inductor`."""
    return {owner: sys.modules[name] for owner, name in MODULES.items() if name in sys.modules}


def entries_readable() -> bool:
    """Return whether this torch has the entry objects that this module reads and writes."""
    return all(name.find() is not None for name in (UNSET, _ENTRIES, _OVERRIDE))


def entries_in(module: ModuleType) -> Mapping[str, Any]:
    """Return the entry objects of a config module by name; empty where this torch does not have them."""
    entries: Mapping[str, Any] = _ENTRIES.of(module, {}) if entries_readable() else {}
    return entries


def read_entries(modules: Mapping[str, ModuleType]) -> dict[str, LiveEntry]:
    """Read every entry of the given modules, by setting id; for an alias, the entry that it refers to."""
    entries = {
        f"{owner}.{name}": entry for owner, module in modules.items() for name, entry in entries_in(module).items()
    }
    unset = UNSET.find()
    live_entries = {}
    for setting_id, entry in entries.items():
        alias = str(getattr(entry, "alias", None) or "")
        target = entries.get(alias_id(alias)) if alias else entry
        if target is not None:
            live_entries[setting_id] = _live_entry(target, unset, alias)
    return live_entries


def _live_entry(entry: Any, unset: object, alias: str) -> LiveEntry:
    override = read_override(entry)
    forced = getattr(entry, "env_value_force", unset)
    from_env = getattr(entry, "env_value_default", unset)
    layers = [layer for layer in (forced, override, from_env) if layer is not unset]
    value = layers[0] if layers else entry.default
    # A value equal to the default is not counted: torch stores a copy of a list or dict as an assignment when it is read.
    assigned = override is not unset and override != entry.default
    in_new_thread = value
    if isinstance(entry.user_override, ContextVar):
        process_layers = [layer for layer in (forced, from_env) if layer is not unset]
        in_new_thread = process_layers[0] if process_layers else entry.default
    return LiveEntry(
        value=value,
        default=entry.default,
        assigned=assigned,
        forced=forced is not unset,
        from_variable=from_env is not unset,
        in_new_thread=in_new_thread,
        alias=alias,
    )


def read_override(entry: Any) -> object:
    """Return the value that this context assigned to an entry, or torch's sentinel for "unset"."""
    override = entry.user_override
    return override.get() if isinstance(override, ContextVar) else override


def write_override(entry: Any, value: object) -> None:
    """Assign to an entry in this context without torch's checks; torch's sentinel for "unset" removes an assignment."""
    if isinstance(entry.user_override, ContextVar):
        entry.user_override.set(value)
    else:
        entry.user_override = value


def overrides_in_other_contexts(modules: dict[str, ModuleType]) -> Iterator[tuple[str, object]]:
    """Yield settings that another thread or task has assigned, with the value there (torch 2.12 and later).

    A value is stored in the context that assigned it. Python has no list of contexts, so they are searched among all objects of
    the garbage collector.
    """
    unset = UNSET.find()
    context_entries = {
        f"{owner}.{name}": entry
        for owner, module in modules.items()
        for name, entry in entries_in(module).items()
        if isinstance(getattr(entry, "user_override", None), ContextVar)
    }
    if not context_entries:
        return
    contexts = [candidate for candidate in gc.get_objects() if type(candidate) is Context]
    for setting_id, entry in context_entries.items():
        value_here = entry.user_override.get()
        for context in contexts:
            value_there = context.get(entry.user_override, unset)
            if value_there is not unset and value_there not in (value_here, entry.default):
                yield setting_id, value_there
                break
