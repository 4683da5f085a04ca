"""Sets settings in this context for the length of a block, and leaves no trace."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from rocsolid.torchapi.config.live import MODULES, loaded, read, read_override, write_override


@contextmanager
def scoped(values: Mapping[str, object]) -> Iterator[None]:
    """Make the settings have these values inside the block, in this thread.

    Entries that this torch does not have are passed over, and so is a value that already holds.
    """
    if not values:
        yield
        return
    owners = {setting.partition(".")[0] for setting in values}
    modules = {owner: importlib.import_module(MODULES[owner]) for owner in owners if owner in MODULES}
    with _scoped(values, modules):
        yield


@contextmanager
def scoped_if_loaded(values: Mapping[str, object]) -> Iterator[None]:
    """As `scoped`, for the config modules that this process has imported; the others have nothing assigned yet."""
    with _scoped(values, loaded()):
        yield


@contextmanager
def _scoped(values: Mapping[str, object], modules: Mapping[str, ModuleType]) -> Iterator[None]:
    live = read(dict(modules))
    changed: list[tuple[Any, object]] = []
    for setting, value in values.items():
        owner, _, name = setting.partition(".")
        if setting in live and live[setting].value != value:
            entry = vars(modules[owner])["_config"][name]
            if entry.alias is None:
                changed.append((entry, read_override(entry)))
                setattr(modules[owner], name, value)
    try:
        yield
    finally:
        for entry, before in reversed(changed):
            write_override(entry, before)
