"""Sets settings in the current context for a block and restores them afterwards."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from rocsolid.torchapi.config.live import (
    MODULES,
    entries_in,
    entries_readable,
    imported_modules,
    read_entries,
    read_override,
    write_override,
)


@contextmanager
def settings_scope(values: Mapping[str, object]) -> Iterator[None]:
    """Set these values inside the block, in this thread.

    Entries that this torch does not have are skipped, and so are values that are set already.
    """
    if not values:
        yield
        return
    owners = {setting.partition(".")[0] for setting in values}
    modules = {owner: importlib.import_module(MODULES[owner]) for owner in owners if owner in MODULES}
    with _set_values(values, modules):
        yield


@contextmanager
def settings_scope_if_imported(values: Mapping[str, object]) -> Iterator[None]:
    """Do the same as `settings_scope`, but only for config modules that this process has imported."""
    with _set_values(values, imported_modules()):
        yield


@contextmanager
def _set_values(values: Mapping[str, object], modules: Mapping[str, ModuleType]) -> Iterator[None]:
    if not entries_readable():
        with ExitStack() as stack:
            for setting, value in values.items():
                owner, _, name = setting.partition(".")
                module: Any = modules.get(owner)
                if module is not None and name in module.get_config_copy():
                    stack.enter_context(module.patch({name: value}))
            yield
        return
    live = read_entries(modules)
    changed: list[tuple[Any, object]] = []
    for setting, value in values.items():
        owner, _, name = setting.partition(".")
        if setting in live and live[setting].value != value:
            entry = entries_in(modules[owner])[name]
            if entry.alias is None:
                changed.append((entry, read_override(entry)))
                setattr(modules[owner], name, value)
    try:
        yield
    finally:
        for entry, previous_override in reversed(changed):
            write_override(entry, previous_override)
