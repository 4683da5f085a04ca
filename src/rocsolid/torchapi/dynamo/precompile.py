"""What Dynamo traced, kept for another process: torch's own way, made safe.

With `caching_precompile` Dynamo keeps its code and guards, and a process that finds them need not trace. Two things stand against
using it as it comes. It files them under the function's name and line alone, so another model of the same class would be given
them. And it drops each guard that compares an object by its address, which are those on functions, classes and modules: whoever
exchanged one would go on with the old code. So here the folder is the caller's, and the names of the dropped guards are told, to be
compared once by what they mean: see `meaning`.
"""

import builtins
import dataclasses
import functools
import hashlib
import importlib
import logging
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.config.scope import scoped
from rocsolid.torchapi.dynamo.compile_hooks import Compile, listen
from rocsolid.torchapi.patch import Swap
from rocsolid.torchapi.private_api import door

_CACHE = door("torch._dynamo.package", "DynamoCache", "2.11..")
_FOLDER = door("torch._dynamo.package", "DiskDynamoCache.path_prefix", "2.11..")
_MADE = door("torch._dynamo.precompile_context", "PrecompileContext.create_cache_entries", "2.11..")
_NAMED = door("torch._dynamo.bytecode_transformation", "unique_id", "2.11..")
_CONVERTER = door("torch._dynamo.convert_frame", "ConvertFrameAssert", "2.4..")
_DEFAULT = door("torch._dynamo.source", "DefaultsSource", "2.4..")
_CLEAR = door("torch._dynamo.precompile_context", "PrecompileContext.clear", "2.11..")
_CONFIG = door("torch._dynamo.config", "caching_precompile", "2.11..")
_LOGGERS: Final = {  # what torch says there
    "torch._dynamo.guards": "is dropped with caching_precompile",
    "torch._dynamo.eval_frame": "Failed to load entry from dynamo cache",  # as when the code was edited: it traces
    "torch._dynamo.output_graph": "Detected a package bypass",
}
_IMPORTED, _BUILTINS = "__import_", "__builtins_dict__"
_COUNTED: Final = re.compile(r"__.*_(\d{1,6})")  # and not one that ends in a long random number
_BY_ADDRESS: Final = re.compile(r"(?<=G\[')_\d+_c[^']+(?='\])")
_ENTRY: Final = "entry"
_FLAG: Final = "dynamo.caching_precompile"


def can_keep_traces() -> bool:
    """Whether this torch can, and nobody uses it already."""
    try:
        return not _CONFIG.reach() and all(gate.is_open() for gate in (_CACHE, _FOLDER, _MADE, _CLEAR))
    except UnsupportedTorchError:
        return False


@contextmanager
def keeping_traces(function: Any, folder: Path, kept: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Inside, Dynamo uses what is kept for a function, and remembers what it traces; yields the names of the guards it drops.

    What it compiles besides, such as the parts of a function that breaks the graph, others use too, and has all its guards.
    """
    for key, entry in kept.items():
        (folder / key).mkdir()
        (folder / key / _ENTRY).write_bytes(entry)
    listener = _Listener()
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(listener)
    converters, within = _Converters(function.__code__), function.__module__
    swaps = (
        Swap(_CACHE.reach(), "path_prefix", lambda _: lambda: str(folder)),
        Swap(_CONVERTER.reach(), "__init__", converters.noted),
        Swap(_DEFAULT.reach(), "__reduce__", lambda _: _as_it_is_made),
    )
    stop = listen(converters)
    try:
        with scoped({_FLAG: True}):
            yield listener.names
    finally:
        stop()
        for swap in swaps:
            swap.undo()
        converters.let_go()
        around = vars(sys.modules[within])
        listener.names[:] = [_BY_ADDRESS.sub(lambda found: _by_import(found, around), name) for name in listener.names]
        _count_on_from(around)
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(listener)


def _as_it_is_made(source: Any) -> tuple[type, tuple[Any, ...]]:
    """How a guard on a default of a function is pickled: torch 2.11 also passes what its class does not take, and cannot load it."""
    return type(source), tuple(getattr(source, field.name) for field in dataclasses.fields(source) if field.init)


def _by_import(found: re.Match[str], around: Mapping[str, Any]) -> str:
    """The name under which another process finds a module that Dynamo put among the globals under its address."""
    value = around.get(found[0])
    return f"{_IMPORTED}{value.__name__.replace('.', '_dot_')}" if isinstance(value, types.ModuleType) else found[0]


def _count_on_from(names: Iterable[str]) -> None:
    """Dynamo counts the names that it makes up, in each process from nought: step over those that came with what was kept."""
    taken = [int(found[1]) for name in names if (found := _COUNTED.fullmatch(name))]
    name = _NAMED.reach()
    while taken and int(name("__rocsolid").rpartition("_")[2]) < max(taken):
        pass


class _Converters:
    """Dynamo's objects that compile frames, each with what it keeps of them: for one code alone, and for a while."""

    def __init__(self, code: types.CodeType) -> None:
        self._code = code
        self._made: list[Any] = []

    def noted(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Remember each that is made."""

        def init(converter: Any, *args: Any, **kwargs: Any) -> None:
            plain(converter, *args, **kwargs)
            if hasattr(converter, "_package"):
                self._made.append(converter)

        return init

    def begun(self, compile_: Compile) -> AbstractContextManager[object]:
        """A compile begins; what is not the code that we mean is compiled as if nothing were kept."""
        return nullcontext() if compile_.code is self._code else self._without()

    def ended(self, compile_: Compile, *, compiled: bool) -> None:
        """Nothing to do."""

    @contextmanager
    def _without(self) -> Iterator[None]:
        before = [(converter, converter._package) for converter in self._made]
        self.let_go()
        try:
            with scoped({_FLAG: False}):
                yield
        finally:
            for converter, package in before:
                converter._package = package

    def let_go(self) -> None:
        """From now on they keep nothing: a compile that is to be kept, and cannot be, fails."""
        for converter in self._made:
            converter._package = None


class _Listener(logging.Filter):
    """Takes torch's warnings about traces, hundreds for one model, and keeps the names of dropped guards."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if _LOGGERS[record.name] not in str(record.msg):
            return True
        if record.name == "torch._dynamo.guards" and isinstance(record.args, tuple):
            self.names.append(str(record.args[-1]))
        return False


def take_traces() -> dict[str, bytes]:
    """What was traced since the last time, as it can be kept."""
    entries, _ = _MADE.reach()()
    _CLEAR.reach()()
    return {key: pickle.dumps(entry) for key, entry in entries.items()}


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
