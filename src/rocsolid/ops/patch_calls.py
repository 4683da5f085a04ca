"""Replaces functions of a module for the duration of a block, without editing its source."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from rocsolid.errors import UnknownNameError, UsageError


@contextmanager
def patch_calls(where: ModuleType | str, calls: Mapping[str, Callable[..., Any]]) -> Iterator[tuple[str, ...]]:
    """Inside the block, replace functions that a module or package calls.

    Experimental: it may change in any release.

    Each name is replaced where it is defined and in every module of `where` that imported it (`from aiter import flash_attn_func`),
    also in modules that are first imported inside the block. At the end everything is restored. Yields the replaced names.

    Args:
        where: the module or package whose calls change; a package includes all its modules.
        calls: dotted name of a function -> its replacement.

    Example:
        >>> import rocsolid as rs, math, statistics
        >>> with rs.patch_calls(statistics, {"math.sqrt": lambda x: -1.0}) as replaced:
        ...     math.sqrt(4)
        -1.0
        >>> math.sqrt(4)
        2.0

    """
    package = importlib.import_module(where) if isinstance(where, str) else where
    if not isinstance(package, ModuleType):
        msg = f"patch_calls takes a module or its name, not {type(package).__name__}"
        raise UsageError(msg)
    originals = {name: _resolve(name) for name in calls}
    replaced: list[tuple[object, str, object, object]] = []
    try:
        for name, (owner, attribute, original) in originals.items():
            _replace(replaced, owner, attribute, original, calls[name])
            for module in _modules(package):
                for alias in [key for key, value in vars(module).items() if value is original]:
                    _replace(replaced, module, alias, original, calls[name])
        yield tuple(f"{getattr(owner, '__name__', owner)}.{attribute}" for owner, attribute, _, _ in replaced)
    finally:
        for owner, attribute, original, replacement in reversed(replaced):
            if getattr(owner, attribute, None) is replacement:
                setattr(owner, attribute, original)
        _restore_new_modules(package, originals, calls)


def _resolve(name: str) -> tuple[object, str, Any]:
    """Import the module of a dotted name; return the owner of the name, its last part and its value."""
    parts = name.split(".")
    owner: Any = None
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        break
    if owner is None:
        msg = f"cannot patch {name}: module {parts[0]!r} is not installed"
        raise UsageError(msg)
    for part in parts[length:-1]:
        owner = getattr(owner, part, None)
    if owner is None or not hasattr(owner, parts[-1]):
        raise UnknownNameError(
            kind="function", name=name, known=[f"{'.'.join(parts[:-1])}.{key}" for key in dir(owner)]
        )
    return owner, parts[-1], getattr(owner, parts[-1])


def _replace(
    replaced: list[tuple[object, str, object, object]], owner: object, name: str, original: object, replacement: object
) -> None:
    if getattr(owner, name, None) is original:
        setattr(owner, name, replacement)
        replaced.append((owner, name, original, replacement))


def _modules(package: ModuleType) -> list[ModuleType]:
    """The module itself and, for a package, all its loaded modules."""
    prefix = f"{package.__name__}."
    return [package, *(m for n, m in list(sys.modules.items()) if n.startswith(prefix) and isinstance(m, ModuleType))]


def _restore_new_modules(
    package: ModuleType, originals: Mapping[str, tuple[object, str, Any]], calls: Mapping[str, Callable[..., Any]]
) -> None:
    """Restore the originals in modules that were imported inside the block."""
    for name, (_, _, original) in originals.items():
        for module in _modules(package):
            for alias in [key for key, value in vars(module).items() if value is calls[name]]:
                setattr(module, alias, original)
