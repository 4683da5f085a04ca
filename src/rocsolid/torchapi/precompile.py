"""What Dynamo traced, kept for another process: torch's own way, made safe.

With `caching_precompile` Dynamo keeps its code and guards, and a process that finds them need not trace. Two things stand against
using it as it comes. It files them under the function's name and line alone, so another model of the same class would be given
them. And it drops each guard that compares an object by its address, which are those on functions, classes and modules: whoever
exchanged one would go on with the old code. So here the folder is the caller's, and the names of the dropped guards are told, to be
compared once by what they mean: see `meaning`.
"""

import builtins
import functools
import hashlib
import importlib
import logging
import pickle
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.doors import door
from rocsolid.torchapi.scope import scoped
from rocsolid.torchapi.swap import Swap

_CACHE = door("torch._dynamo.package", "DynamoCache", "2.9..")
_FOLDER = door("torch._dynamo.package", "DiskDynamoCache.path_prefix", "2.9..")
_MADE = door("torch._dynamo.precompile_context", "PrecompileContext.create_cache_entries", "2.10..")
_CLEAR = door("torch._dynamo.precompile_context", "PrecompileContext.clear", "2.9..")
_CONFIG = door("torch._dynamo.config", "caching_precompile", "2.9..")
_FORGET = door("torch._dynamo.eval_frame", "remove_from_cache", "2.4..")
_LOGGERS: Final = {  # what torch says there
    "torch._dynamo.guards": "is dropped with caching_precompile",
    "torch._dynamo.eval_frame": "Failed to load entry from dynamo cache",  # as when the code was edited: it traces
}
_IMPORTED, _BUILTINS = "__import_", "__builtins_dict__"
_ENTRY: Final = "entry"


def can_keep_traces() -> bool:
    """Whether this torch can, and nobody uses it already."""
    try:
        return not _CONFIG.reach() and all(gate.is_open() for gate in (_CACHE, _FOLDER, _MADE, _CLEAR))
    except UnsupportedTorchError:
        return False


@contextmanager
def keeping_traces(folder: Path, kept: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Inside, Dynamo uses what is kept, and remembers what it traces; yields the names of the guards that it drops."""
    for key, entry in kept.items():
        (folder / key).mkdir()
        (folder / key / _ENTRY).write_bytes(entry)
    listener = _Listener()
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(listener)
    swap = Swap(_CACHE.reach(), "path_prefix", lambda _: lambda: str(folder))
    try:
        with scoped({"dynamo.caching_precompile": True}):
            yield listener.names
    finally:
        swap.undo()
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(listener)


class _Listener(logging.Filter):
    """Takes torch's warnings about traces, hundreds for one model, and keeps the names of dropped guards."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if _LOGGERS[record.name] not in str(record.msg):
            return True
        if isinstance(record.args, tuple) and record.args:
            self.names.append(str(record.args[-1]))
        return False


def take_traces() -> dict[str, bytes]:
    """What was traced since the last time, as it can be kept."""
    entries, _ = _MADE.reach()()
    _CLEAR.reach()()
    return {key: pickle.dumps(entry) for key, entry in entries.items()}


def forget(function: Any) -> None:
    """Let a function be traced anew by whoever compiles it next."""
    _FORGET.reach()(function)


class _Globals(dict[str, Any]):
    """A function's globals, and the modules that Dynamo reaches through names of its own."""

    def __missing__(self, name: str) -> Any:
        if name.startswith(_BUILTINS):
            return vars(builtins)
        if not name.startswith(_IMPORTED):
            raise KeyError(name)
        return importlib.import_module(name.removeprefix(_IMPORTED).replace("_dot_", "."))


def meanings(model: Any, names: Sequence[str]) -> dict[str, str] | None:
    """What each of these names stands for when the model is called; None when that cannot be told of one of them."""
    scope = {"L": {"self": model}, "G": _Globals(model.forward.__globals__)}
    try:
        return {name: meaning(eval(name, scope)) for name in names}  # noqa: S307 - Dynamo's own names, from a folder we trust
    except Exception:  # noqa: BLE001 - what cannot be reached, or has no meaning that another process would see
        return None


def meaning(value: Any) -> str:
    """A thing by what it is and not where it lies: the same text for the same thing in another process; raises for others."""
    if isinstance(value, types.CodeType):
        return f"code {_digest(value)}"
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__} {_digest(value.__code__)} {_cells(value)}"
    if isinstance(value, types.MethodType):
        return f"{meaning(value.__func__)} of {meaning(type(value.__self__))}"
    if isinstance(value, functools.partial):
        return f"partial {meaning(value.func)} {value.args!r} {value.keywords!r}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        raise TypeError(type(value))
    return f"{type(value).__name__} {getattr(value, '__module__', '')}.{name}"


def _digest(code: types.CodeType) -> str:
    """Of what the code does; where it stands in the file does not matter."""
    told = hashlib.sha256(code.co_code)
    told.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        told.update((_digest(constant) if isinstance(constant, types.CodeType) else repr(constant)).encode())
    return told.hexdigest()[:16]


def _cells(function: types.FunctionType) -> str:
    """The plain values that a function has around it; functions among them have guards of their own."""
    found = []
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # empty
            continue
        if isinstance(content, (bool, int, float, str)):
            found.append(content)
    return repr(found)
