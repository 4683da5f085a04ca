"""Swaps calls for the length of a block, without editing the source."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from rocsolid.errors import UnknownNameError, UsageError


@contextmanager
def patch_calls(where: ModuleType | str, calls: Mapping[str, Callable[..., Any]]) -> Iterator[tuple[str, ...]]:
    """Inside the block, let a module or package call something else than it imported.

    Each name is replaced where it lives and wherever a module of `where` has bound it (`from aiter import flash_attn_func`), also
    in modules that are first imported inside the block. At the end everything is as it was. Gives the places that were replaced.

    Args:
        where: the module or package whose calls are to change; a package stands for all its modules.
        calls: dotted name of a function, to what is called instead.

    Example:
        >>> import rocsolid as rs, math, statistics
        >>> with rs.patch_calls(statistics, {"math.sqrt": lambda x: -1.0}) as places:
        ...     math.sqrt(4)
        -1.0
        >>> math.sqrt(4)
        2.0

    """
    package = importlib.import_module(where) if isinstance(where, str) else where
    if not isinstance(package, ModuleType):
        msg = f"patch_calls takes a module, a package or the name of one, and not {type(package).__name__}"
        raise UsageError(msg)
    originals = {name: _found(name) for name in calls}
    done: list[tuple[object, str, object, object]] = []
    try:
        for name, (owner, attribute, original) in originals.items():
            _replace(done, owner, attribute, original, calls[name])
            for module in _modules(package):
                for bound in [key for key, value in vars(module).items() if value is original]:
                    _replace(done, module, bound, original, calls[name])
        yield tuple(f"{getattr(owner, '__name__', owner)}.{attribute}" for owner, attribute, _, _ in done)
    finally:
        for owner, attribute, original, ours in reversed(done):
            if getattr(owner, attribute, None) is ours:
                setattr(owner, attribute, original)
        _clean_up(package, originals, calls)


def _found(name: str) -> tuple[object, str, Any]:
    """Where a dotted name lives, its last part, and what it is; the module part is imported."""
    parts = name.split(".")
    owner: Any = None
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        break
    if owner is None:
        msg = f"cannot patch {name}: there is no module {parts[0]!r} here"
        raise UsageError(msg)
    for part in parts[length:-1]:
        owner = getattr(owner, part, None)
    if owner is None or not hasattr(owner, parts[-1]):
        raise UnknownNameError(kind="call", name=name, known=[f"{'.'.join(parts[:-1])}.{key}" for key in dir(owner)])
    return owner, parts[-1], getattr(owner, parts[-1])


def _replace(
    done: list[tuple[object, str, object, object]], owner: object, name: str, original: object, ours: object
) -> None:
    if getattr(owner, name, None) is original:
        setattr(owner, name, ours)
        done.append((owner, name, original, ours))


def _modules(package: ModuleType) -> list[ModuleType]:
    """The module itself and, of a package, all that are loaded."""
    inside = f"{package.__name__}."
    return [package, *(m for n, m in list(sys.modules.items()) if n.startswith(inside) and isinstance(m, ModuleType))]


def _clean_up(
    package: ModuleType, originals: Mapping[str, tuple[object, str, Any]], calls: Mapping[str, Callable[..., Any]]
) -> None:
    """A module that was imported inside the block has bound what it found; give it the original."""
    for name, (_, _, original) in originals.items():
        for module in _modules(package):
            for bound in [key for key, value in vars(module).items() if value is calls[name]]:
                setattr(module, bound, original)
