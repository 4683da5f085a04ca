"""Saves Dynamo's traces for another process with torch's `caching_precompile`, and makes that safe.

With `caching_precompile` Dynamo stores its code and guards, and a process that loads them does not trace again. Alone, it is unsafe for
two reasons. It stores traces by the function's name and line only, so another model of the same class would use them. And it drops
every guard that compares an object by its address (functions, classes and modules): if such an object is replaced, the old code is
still used. Here the caller chooses the folder, one per model. The names of the dropped guards are returned, so that the caller can
compare descriptions of the objects: see `describe_object`.

`torch.compiler.precompile` (2.14 and later) is no replacement: it records the operators of one call with `make_fx`, without guards, so
a changed attribute of the model changes nothing (tried with 2.15.0: old results), and another shape raises. 2.15 contains the parts of
a capture with Dynamo's guards that also names the dropped ones (`torch/_dynamo/precompile_package.py`); nothing public uses them yet.
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

from rocsolid.torchapi.config.scope import settings_scope
from rocsolid.torchapi.dynamo.compile_hooks import CACHING_PRECOMPILE, Compile, add_compile_listener
from rocsolid.torchapi.private_api import private_name

_NOT_SAVED = "rs.optimize: Dynamo's traces are not kept, so a second process traces again"
_PATH_PREFIX = private_name("torch._dynamo.package", "DynamoCache.path_prefix", "2.11..", without=_NOT_SAVED)
_ENTRIES = private_name(
    "torch._dynamo.precompile_context", "PrecompileContext.create_cache_entries", "2.11..", without=_NOT_SAVED
)
_UNIQUE_ID = private_name("torch._dynamo.bytecode_transformation", "unique_id", "2.11..", without=_NOT_SAVED)
_CONVERTER = private_name("torch._dynamo.convert_frame", "ConvertFrameAssert.__init__", "2.11..", without=_NOT_SAVED)
_PACKAGE = private_name(
    "torch._dynamo.convert_frame", "ConvertFrameAssert._package", "2.11..", of_instances=True, without=_NOT_SAVED
)
_DEFAULTS_SOURCE = private_name("torch._dynamo.source", "DefaultsSource.__reduce__", "2.11..", without=_NOT_SAVED)
_CLEAR = private_name("torch._dynamo.precompile_context", "PrecompileContext.clear", "2.11..", without=_NOT_SAVED)
# Names the dropped guards. Without this message we could not tell which guards a saved trace lacks.
_DROPPED = private_name(
    "torch._dynamo.guards", "is dropped with caching_precompile", "2.11..", text=True, without=_NOT_SAVED
)
# The beginnings of names that Dynamo generates.
IMPORT_PREFIX = private_name("torch._dynamo", "__import_", "2.11..", text=True, without=_NOT_SAVED)
BUILTINS_PREFIX = private_name("torch._dynamo", "__builtins_dict__", "2.11..", text=True, without=_NOT_SAVED)
_NEEDED: Final = (
    _PATH_PREFIX,
    _ENTRIES,
    _UNIQUE_ID,
    _CONVERTER,
    _PACKAGE,
    _DEFAULTS_SOURCE,
    _CLEAR,
    _DROPPED,
    IMPORT_PREFIX,
    BUILTINS_PREFIX,
)
_SHOWN = "rs.optimize: torch's warnings about traces that cannot be kept are shown"
_FILTERED_MESSAGES: Final = {  # by logger: a part of the messages that are hidden
    hidden.module: hidden
    for hidden in (
        _DROPPED,
        # For example after the code was edited; Dynamo then traces again.
        private_name(
            "torch._dynamo.eval_frame", "Failed to load entry from dynamo cache", "2.11..", text=True, without=_SHOWN
        ),
        private_name("torch._dynamo.output_graph", "Detected a package bypass", "2.11..", text=True, without=_SHOWN),
    )
}
_NUMBERED_NAME: Final = re.compile(r"__.*_(\d{1,6})")  # not names that end in a long random number
_NAME_WITH_ADDRESS: Final = re.compile(r"(?<=G\[')_\d+_c[^']+(?='\])")
_ENTRY_FILE: Final = "entry"
_SETTING: Final = "dynamo.caching_precompile"


def can_save_traces() -> bool:
    """Return whether this torch can save traces, and the user has not enabled `caching_precompile`."""
    return CACHING_PRECOMPILE.find() is False and all(name.find() is not None for name in _NEEDED)


@contextmanager
def saving_traces(function: Any, folder: Path, saved: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Inside the block, Dynamo uses the saved traces of a function and records new ones; yields a list of the names of dropped guards.

    Other code that is compiled inside the block, such as the resumed parts of a function with graph breaks, may be shared with other
    callers. Its traces are not saved, and it keeps all its guards.
    """
    for key, entry in saved.items():
        (folder / key).mkdir()
        (folder / key / _ENTRY_FILE).write_bytes(entry)
    log_filter = _TraceLogFilter()
    for name, hidden in _FILTERED_MESSAGES.items():
        if not hidden.is_closed():
            logging.getLogger(name).addFilter(log_filter)
    converters, module_name = _Converters(function.__code__), function.__module__
    patches = (
        _PATH_PREFIX.patch(lambda _: lambda: str(folder)),
        _CONVERTER.patch(converters.recording_init),
        _DEFAULTS_SOURCE.patch(lambda _: reduce_by_init_fields),
    )
    remove_listener = add_compile_listener(converters)
    try:
        with settings_scope({_SETTING: True}):
            yield log_filter.names
    finally:
        remove_listener()
        for patch in filter(None, patches):
            patch.undo()
        converters.stop_saving()
        globals_ = vars(sys.modules[module_name])
        log_filter.names[:] = [
            _NAME_WITH_ADDRESS.sub(lambda match: _import_name(match, globals_), name) for name in log_filter.names
        ]
        _skip_used_names(globals_)
        for name in _FILTERED_MESSAGES:
            logging.getLogger(name).removeFilter(log_filter)


def reduce_by_init_fields(source: Any) -> tuple[type, tuple[Any, ...]]:
    """Pickle a guard source by its init fields: torch 2.11 also passes a field that `__init__` rejects, so loading would fail."""
    return type(source), tuple(getattr(source, field.name) for field in dataclasses.fields(source) if field.init)


def _import_name(match: re.Match[str], globals_: Mapping[str, Any]) -> str:
    """Convert the name of a global that contains a module's address to a name that is valid in another process."""
    value = globals_.get(match[0])
    return (
        f"{IMPORT_PREFIX.name}{value.__name__.replace('.', '_dot_')}"
        if isinstance(value, types.ModuleType)
        else match[0]
    )


def _skip_used_names(names: Iterable[str]) -> None:
    """Advance Dynamo's name counter, which starts at 0 in each process, past the names that were loaded."""
    used_numbers = [int(match[1]) for name in names if (match := _NUMBERED_NAME.fullmatch(name))]
    unique_id = _UNIQUE_ID.get()
    while used_numbers and int(unique_id("__rocsolid").rpartition("_")[2]) < max(used_numbers):
        pass


class _Converters:
    """Dynamo's frame converters. They save only the traces of one code object, until `stop_saving`."""

    def __init__(self, code: types.CodeType) -> None:
        self._code = code
        self._converters: list[Any] = []

    def recording_init(self, original: Callable[..., None]) -> Callable[..., None]:
        """Record every converter that is created."""

        def init(converter: Any, *args: Any, **kwargs: Any) -> None:
            original(converter, *args, **kwargs)
            if hasattr(converter, _PACKAGE.attribute):
                self._converters.append(converter)

        return init

    def on_start(self, compile_: Compile) -> AbstractContextManager[object]:
        """Called when a compile starts: other code than ours is compiled without saving."""
        return nullcontext() if compile_.code is self._code else self._not_saving()

    def on_end(self, compile_: Compile, *, compiled: bool) -> None:
        """Do nothing."""

    @contextmanager
    def _not_saving(self) -> Iterator[None]:
        packages = [(converter, _PACKAGE.of(converter)) for converter in self._converters]
        self.stop_saving()
        try:
            with settings_scope({_SETTING: False}):
                yield
        finally:
            for converter, package in packages:
                setattr(converter, _PACKAGE.attribute, package)

    def stop_saving(self) -> None:
        """Stop saving traces: if this continued after the block, a later compile whose result cannot be saved would fail."""
        for converter in self._converters:
            setattr(converter, _PACKAGE.attribute, None)


class _TraceLogFilter(logging.Filter):
    """Hides torch's warnings about dropped guards (hundreds for one model), and collects the names of these guards."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        hidden = _FILTERED_MESSAGES[record.name]
        if hidden.name not in str(record.msg):
            return True
        if record.name == _DROPPED.module and isinstance(record.args, tuple):
            self.names.append(str(record.args[-1]))
        return False


def take_traces() -> dict[str, bytes]:
    """Return what was traced since the last call, serialised, and clear it."""
    entries, _ = _ENTRIES.get()()
    _CLEAR.get()()
    return {key: pickle.dumps(entry) for key, entry in entries.items()}


class _Globals(dict[str, Any]):
    """A function's globals, plus the modules that Dynamo refers to by generated names."""

    def __missing__(self, name: str) -> Any:
        if name.startswith(BUILTINS_PREFIX.name):
            return vars(builtins)
        if not name.startswith(IMPORT_PREFIX.name):
            raise KeyError(name)
        return importlib.import_module(name.removeprefix(IMPORT_PREFIX.name).replace("_dot_", "."))


def describe_guarded(model: Any, names: Sequence[str]) -> dict[str, str] | None:
    """Describe the object behind each guard name; None if one of them cannot be described."""
    scope = {"L": {"self": model}, "G": _Globals(model.forward.__globals__)}
    try:
        return {name: describe_object(eval(name, scope)) for name in names}  # noqa: S307 - Dynamo's own names, from a trusted folder
    except Exception:  # noqa: BLE001 - an object that is gone or has no stable description
        return None


def describe_object(value: Any) -> str:
    """Describe an object without its address, so that the text is the same in another process; raises TypeError if that is impossible."""
    if isinstance(value, types.CodeType):
        return f"code {_digest(value)}"
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__} {_digest(value.__code__)} {_closure_values(value)}"
    if isinstance(value, types.MethodType):
        return f"{describe_object(value.__func__)} of {describe_object(type(value.__self__))}"
    if isinstance(value, functools.partial):
        return f"partial {describe_object(value.func)} {value.args!r} {value.keywords!r}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        raise TypeError(type(value))
    return f"{type(value).__name__} {getattr(value, '__module__', '')}.{name}"


def _digest(code: types.CodeType) -> str:
    """Return a hash of the bytecode, names and constants, without line numbers."""
    digest = hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        digest.update((_digest(constant) if isinstance(constant, types.CodeType) else repr(constant)).encode())
    return digest.hexdigest()[:16]


def _closure_values(function: types.FunctionType) -> str:
    """Return the numbers and strings in a function's closure, as text; functions in the closure have their own guards."""
    values = []
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # empty
            continue
        if isinstance(content, (bool, int, float, str)):
            values.append(content)
    return repr(values)
