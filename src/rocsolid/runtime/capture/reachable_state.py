"""Finds what a function can reach besides the tensors of a call: attributes, closures, globals, defaults, classes, containers.

A graph contains the addresses and values of this state at the time of the capture. `state_snapshot.py` takes snapshots of it: to
restore it after the warm-up runs, to detect side effects that no replay repeats, and to detect at each replay what has changed.

The walk follows values, not the program: it visits every attribute of every object. Of the functions and methods it visits those
that a run of the call executed: as long as nothing that they read has changed, another run executes the same ones. Before there was
such a run, it visits every function, and every method whose name occurs in code that was visited before. It does not look into
objects of torch's internals, of the standard library (except its containers) and of extension modules.
"""

import array
import contextvars
import functools
import gc
import itertools
import operator
import os
import random
import sys
import threading
import types
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple

import torch

from rocsolid.torchapi.dynamo.compiled_function import ORIGINAL_FUNCTION
from rocsolid.torchapi.graphs.replay_checks import (
    MODULE_CONTENTS,
    MODULE_HOOKS,
    backend_flags,
    global_forward_hooks,
    parametrization_cache,
)
from rocsolid.torchapi.pytree import constant_key

MISSING: Final = object()  # in place of a value: an attribute that is not set
_MAX_VALUES: Final = 200_000  # values to visit
_MAX_ITEMS: Final = 100_000  # items of all lists, deques and sets, which are compared one by one at each replay
_MAX_CONTENT_BYTES: Final = (
    16 * 2**20
)  # of numpy arrays and byte arrays, which are compared byte by byte at each replay
_WRAPPED_FUNCTION_ATTRIBUTES: Final = ("__wrapped__", ORIGINAL_FUNCTION.attribute, "__rocsolid_function__")
# Packages whose objects are compared by identity only. They change without an effect on results (caches, locks, logs).
_SKIPPED_PACKAGES: Final = ("torch._", "torch.fx", "torch.jit", "torch.cuda", "torch.distributed", "torch.autograd")
# The second line has tools that run programs: through them, a function reaches the whole test session or notebook.
_SKIPPED_PACKAGES_BY_ROOT: Final = frozenset(
    {"numpy", "triton", "tqdm", "rocsolid"}
    | {"pytest", "_pytest", "pluggy", "hypothesis", "IPython", "ipykernel", "traitlets", "debugpy"}
)
_VISITED_STDLIB: Final = frozenset({"collections", "types", "argparse", "functools", "dataclasses", "__main__"})
_CONSTRUCTORS: Final = frozenset({"__init__", "__new__", "__post_init__"})
# Special methods that no result depends on.
_IGNORED_METHODS: Final = _CONSTRUCTORS | {
    "__del__", "__repr__", "__str__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__",
    "__deepcopy__", "__init_subclass__", "__set_name__", "__class_getitem__", "__dir__", "__sizeof__", "__subclasshook__",
}  # fmt: skip
# Code without these names, and without a name that contains "grad" (but not "gradient"), reads no `.grad`.
_GRADIENT_NAMES: Final = frozenset({"backward", "step"})
_GRAD_MODE_NAMES: Final = frozenset(
    {
        "no_grad",
        "enable_grad",
        "set_grad_enabled",
        "is_grad_enabled",
        "requires_grad",
        "requires_grad_",
        "inference_mode",
    }
)
_SEQUENCES: Final = (list, tuple, deque, set, frozenset)
_LRU_CACHE: Final = type(functools.lru_cache(lambda: None))
_METHOD_TYPES: Final = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_TYPING_MODULES: Final = ("typing", "typing_extensions")
_IMPORT_MACHINERY: Final = (
    "__builtins__",
    "__loader__",
    "__spec__",
)  # globals of every module; they reach importers and their caches
_UNKNOWN_POSITION: Final = "unknown"  # of an iterator
_EXECUTOR_FILE: Final = ThreadPoolExecutor.submit.__code__.co_filename
_COMPILED_CALLS_FILE: Final = "/torch/_dynamo/eval_frame.py"  # has the wrapper of every compiled function
_CONSTANTS: Final = (type(None), bool, int, float, complex, str, bytes, type(...), torch.dtype, torch.device, Enum)


class Reference(NamedTuple):
    """One place that holds a value: an item of a container, or an attribute."""

    path: str
    holder: Any
    key: Any
    value: Any
    by_attribute: bool = False  # the key is the name of an attribute

    def current(self) -> Any:
        """Return the present value; MISSING when there is none."""
        try:
            return getattr(self.holder, self.key) if self.by_attribute else self.holder[self.key]
        except (AttributeError, LookupError, ValueError):  # ValueError: an empty closure cell
            return MISSING

    def restore(self) -> None:
        """Put the original value back."""
        if self.current() is self.value:
            return
        if not self.by_attribute:
            self.holder[self.key] = self.value
        elif self.value is MISSING:
            delattr(self.holder, self.key)
        else:
            try:
                setattr(self.holder, self.key, self.value)
            except AttributeError:  # a frozen dataclass
                object.__setattr__(self.holder, self.key, self.value)


class WatchedDict(NamedTuple):
    """A dictionary whose values are compared by identity: a plain one, or the attributes of an object, class or Python module."""

    path: str
    items: dict[Any, Any]
    names: frozenset[str] | None = None  # only these keys are watched; None: all
    is_attributes: bool = False
    owner: type | None = None  # the class, where the dictionary holds the attributes of a class
    label: str = ""  # what to call a change, in place of the path of the changed value

    def entry_path(self, key: Any) -> str:
        """Return what the user writes for one of the values."""
        return joined(self.path, key) if self.is_attributes else f"{self.path}[{key!r}]"


class Content(NamedTuple):
    """An object whose content is compared by value, because it has no Python values that could be compared by identity."""

    path: str
    value: Any
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None] | None  # None: the content cannot be restored
    watched: bool = True  # False: others may change it between the calls, but not the function itself (random numbers)


@dataclass(kw_only=True)
class ReachableState:
    """Everything a function can reach."""

    tensors: list[Reference] = field(default_factory=list)
    named_modules: list[tuple[str, Any]] = field(default_factory=list)  # by path, the function itself included
    generators: list[Any] = field(default_factory=list)
    dicts: list[WatchedDict] = field(default_factory=list)
    sequences: list[tuple[str, Any]] = field(default_factory=list)  # lists, deques, sets; the keys of OrderedDicts
    attributes: list[Reference] = field(default_factory=list)  # closure cells, slots, the code of functions
    objects: list[tuple[str, Any]] = field(default_factory=list)  # objects whose class and `__dict__` could be replaced
    contents: list[Content] = field(default_factory=list)
    unwatchable: str = ""  # what of it cannot be watched; empty when everything can

    def without_gradients(self) -> "ReachableState":
        """Return the state without gradients, which a training step sets and the caller clears between the calls."""
        tensors, attributes = (
            [ref for ref in references if not (ref.by_attribute and ref.key == "grad")]
            for references in (self.tensors, self.attributes)
        )
        return replace(self, tensors=tensors, attributes=attributes)


ExecutedCode = Mapping[types.CodeType, dict[str, Any]]  # the code of functions, and their globals


def record_executed_code(body: Callable[[], Any]) -> ExecutedCode | None:
    """Run a call and return which Python functions it executed; None when that cannot be known.

    It cannot be known if another profiler is active, and if the call passes functions to other threads.
    """
    if sys.getprofile() is not None or threading.getprofile() is not None:
        return None
    from rocsolid.runtime.background_thread import clear_exception_flag

    clear_exception_flag()  # with the flag, the profiled call could hang
    executed: dict[types.CodeType, dict[str, Any]] = {}

    def profile(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code not in executed:
            executed[frame.f_code] = frame.f_globals

    threading.setprofile(profile)  # of threads that the call starts
    sys.setprofile(profile)
    try:
        body()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return None if any(code.co_filename == _EXECUTOR_FILE for code in executed) else executed


def runs_compiled_code(executed: ExecutedCode) -> bool:
    """Return whether one of the functions is a compiled function."""
    return any(code.co_filename.endswith(_COMPILED_CALLS_FILE) for code in executed)


def collect_reachable(
    function: Callable[..., Any] | None,
    arguments: Mapping[str, Any] | None = None,
    executed: ExecutedCode | None = None,
) -> ReachableState:
    """Return everything that the function can reach now, also through these arguments; without a function, only what these reach.

    With `executed`, other functions are not visited.
    """
    return _Collector(executed).run(function, arguments or {})


class _Collector:
    """A breadth-first walk over closures, globals, attributes and containers."""

    def __init__(self, executed: ExecutedCode | None) -> None:
        self._executed = executed
        self._visited_code: set[types.CodeType] = set()
        self._state = ReachableState()
        self._seen: dict[int, Any] = {}  # by id(); kept alive so that no id() is used twice
        self._next: deque[tuple[str, Any]] = deque()
        self._names: set[str] = set()  # names and strings in the code that was visited
        self._methods_by_name: dict[str, list[tuple[str, Any]]] = {}  # methods whose names were not seen yet
        self._global_names: dict[int, tuple[dict[str, Any], set[str]]] = {}  # by id() of the globals
        self._python_modules: dict[int, types.ModuleType] = {}  # modules that the function reaches, by id()
        self._items = 0

    def run(self, function: Callable[..., Any] | None, arguments: Mapping[str, Any]) -> ReachableState:
        self._next.append(("", function))
        for path, argument in arguments.items():
            self._add(Reference(path, (argument,), 0, argument))
        known = (-1, -1)
        while self._next or known != (len(self._names), len(self._python_modules)):
            self._visit_all()
            self._visit_unreached_code()
            known = len(self._names), len(self._python_modules)
            for module in list(self._python_modules.values()):  # with the names that are known by now
                self._visit_globals(vars(module), self._names)
        self._add_global_state()
        self._add_gradients()
        self._limit_contents()
        return self._state

    def _add_global_state(self) -> None:
        for items, names in self._global_names.values():
            if names:
                self._state.dicts.append(WatchedDict("", items, frozenset(names), is_attributes=True))
        if self._state.named_modules:
            for hooks in global_forward_hooks():
                self._state.dicts.append(WatchedDict("", hooks, label="the global module hooks"))
        if not self._names.isdisjoint({"environ", "getenv"}):
            self._state.dicts.append(WatchedDict("os.environ", vars(os.environ)["_data"]))
        if "backends" in self._names:
            self._state.contents.append(Content("torch.backends", None, _backend_flags, None))
        if any("parametrizations" in dict(module.named_children()) for _, module in self._state.named_modules):
            cache, name = parametrization_cache()
            self._state.dicts.append(WatchedDict("parametrize", cache, frozenset({name}), is_attributes=True))

    def _visit_all(self) -> None:
        while self._next:
            path, value = self._next.popleft()
            if self._state.unwatchable or not self._is_new(value):
                continue
            try:
                self._visit(path, value)
            except Exception as error:  # noqa: BLE001 - code of the user's class, such as a `__dict__` that raises
                self._state.unwatchable = f"`{path}`, whose attributes cannot be read ({type(error).__name__}: {error})"
            if len(self._seen) > _MAX_VALUES:
                place = f", many of them in `{path}`" if path else ""
                self._state.unwatchable = f"more than {_MAX_VALUES:,} Python values{place}"

    def _visit_unreached_code(self) -> None:
        """Visit the globals of functions that were executed, but not found by the walk: found by a computed name, for example."""
        for code, values in (self._executed or {}).items():
            module = values.get("__name__") or ""
            if code not in self._visited_code and not is_library(module) and module.partition(".")[0] != "torch":
                self._visit_code(code, values)

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen[id(value)] = value
        return True

    def _visit(self, path: str, value: Any) -> None:  # noqa: C901, PLR0912 - one case for each kind of value
        if _is_type_alias(value):
            self._next.extend((path, named) for named in _named_types(value))
        elif getattr(type(value), "_rocsolid_captured", False):  # a captured function: continue with what it wraps
            self._next.append((path, value.__rocsolid_function__))
        elif isinstance(value, torch.nn.Module):
            self._visit_module(path, value)
        elif isinstance(value, types.FunctionType):
            self._visit_function(path, value)
        elif isinstance(value, types.MethodType):
            self._next.extend([(path, value.__self__), (path, value.__func__)])
        elif isinstance(value, functools.partial):
            self._next.extend([(path, value.func), (f"{path}.args", value.args), (f"{path}.keywords", value.keywords)])
        elif isinstance(value, type):
            self._visit_class(value, constructed=True)
        elif isinstance(value, types.ModuleType):
            self._python_modules[id(value)] = value
        elif isinstance(value, (staticmethod, classmethod)):
            self._next.append((path, value.__func__))
        elif isinstance(value, property):
            self._next.append((path, value.fget))
            self._visit_object(path, value)
        elif isinstance(value, functools.cached_property):
            self._next.append((path, value.func))
        elif isinstance(value, weakref.ref):
            self._next.append((path, value()))
        elif isinstance(value, types.MappingProxyType):
            self._next.extend((path, inner) for inner in gc.get_referents(value))
        elif isinstance(value, torch.Generator):
            self._state.generators.append(value)
        elif isinstance(value, (dict, list, tuple, deque, set, frozenset)):
            self._visit_container(path, value)
            if type(value).__module__ not in ("builtins", "collections"):
                self._visit_object(path, value)
        elif isinstance(value, _LRU_CACHE):
            self._state.contents.append(Content(path, value, _cached_results, None))
            self._next.append((path, value.__wrapped__))
            self._next.extend((f"{path}(...)", result.value) for result in _cached_results(value))
        elif isinstance(value, contextvars.ContextVar):
            self._state.contents.append(Content(path, value, _context_value, None))
            self._next.append((path, value.get(None)))
        elif isinstance(value, threading.local):
            self._state.contents.append(Content(path, value, _local_values, None))
            self._next.extend((joined(path, name), item) for name, item in vars(value).items())
        elif content := _content(path, value):
            self._state.contents.append(content)
            self._visit_object(path, value)
            if content.read(value) == _UNKNOWN_POSITION:
                self._state.unwatchable = f"`{path}`, a {type(value).__name__} whose position cannot be read"
        else:
            self._visit_object(path, value)

    def _add(self, reference: Reference) -> None:
        """Continue with the value of a reference."""
        value = reference.value
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                self._state.unwatchable = f"`{reference.path}`, a tensor of layout {value.layout}"
                return
            self._state.tensors.append(reference)
            if self._is_new(value) and getattr(value, "__dict__", None):
                self._visit_attributes(reference.path, vars(value))
        elif not _is_constant(value):
            self._next.append((reference.path, value))

    def _visit_attributes(self, path: str, attributes: dict[str, Any], skipped: Iterable[str] = ()) -> None:
        self._state.dicts.append(WatchedDict(path, attributes, is_attributes=True))
        for name, value in list(attributes.items()):
            if name not in skipped:
                self._add(Reference(joined(path, name), attributes, name, value))

    def _visit_module(self, path: str, module: Any) -> None:
        self._state.named_modules.append((path, module))
        self._state.objects.append((path, module))
        attributes = vars(module)
        if isinstance(module, torch.jit.ScriptModule):
            self._state.unwatchable = (
                f"`{path or type(module).__name__}`, a scripted module, whose attributes are not Python objects"
            )
            return
        internal = _attributes_of_every_module()
        self._visit_attributes(path, attributes, skipped=internal)
        for name in MODULE_CONTENTS:
            contents = attributes.get(name.attribute)
            if isinstance(contents, dict):
                self._visit_attributes(path, contents)
        for kind in (name.attribute for name in MODULE_HOOKS):
            hooks = attributes.get(kind)
            if isinstance(hooks, dict):
                which = f"module `{path}`" if path else "the module"
                label = f"the {kind.strip('_').replace('_', ' ')} of {which}"
                self._state.dicts.append(WatchedDict(path, hooks, label=label))
                self._next.extend((joined(path, kind), hook) for hook in hooks.values())
        self._visit_slots(path, module)
        self._visit_class(type(module))

    def _visit_object(self, path: str, value: Any) -> None:
        """Visit the attributes of an object that is not one of torch's internals, of the standard library or of an extension."""
        kind = type(value)
        if is_library(kind.__module__) and not isinstance(value, torch.optim.Optimizer):
            return
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict) and not any(slot_names(kind)):
            return
        self._state.objects.append((path, value))
        if isinstance(attributes, dict):
            self._visit_attributes(path, attributes)
        self._visit_slots(path, value)
        self._visit_class(kind)

    def _visit_slots(self, path: str, value: Any) -> None:
        for name in slot_names(type(value)):
            current = getattr(value, name, MISSING)
            if current is MISSING or _can_be_set(value, name, current):
                self._add_attribute(joined(path, name), value, name)
            else:  # a read-only member of an extension's class: nobody can put another object there
                self._add(Reference(joined(path, name), value, name, current, by_attribute=True))

    def _add_attribute(self, path: str, holder: Any, name: str) -> None:
        reference = Reference(path, holder, name, None, by_attribute=True)
        reference = reference._replace(value=reference.current())
        self._state.attributes.append(reference)
        if reference.value is not MISSING:
            self._add(reference)

    def _visit_class(self, kind: type, *, constructed: bool = False) -> None:
        """Watch the attributes of a class and its bases, and visit them; `constructed` means that the class itself is reachable."""
        if issubclass(kind, Enum):
            return
        for cls in kind.__mro__[:-1]:
            if cls.__module__ == "builtins":
                continue
            library = is_library(cls.__module__) or cls.__module__.startswith("torch.")
            if not library and constructed:
                members = ((f"{cls.__qualname__}.{name}", vars(cls).get(name)) for name in _CONSTRUCTORS)
                self._next.extend((path, member) for path, member in members if member is not None)
            # The dictionary inside the read-only `__dict__` of a class: its version shows whether the class was changed.
            attributes = next((d for d in gc.get_referents(vars(cls)) if isinstance(d, dict)), None)
            if attributes is None or not self._is_new(attributes):
                continue
            self._state.dicts.append(WatchedDict(cls.__qualname__, attributes, is_attributes=True, owner=cls))
            if not library:
                bases = Reference(f"{cls.__qualname__}.__bases__", cls, "__bases__", cls.__bases__, by_attribute=True)
                self._state.attributes.append(bases)
                self._visit_members(cls)

    def _visit_members(self, cls: type) -> None:
        for name, member in list(vars(cls).items()):
            path = f"{cls.__qualname__}.{name}"
            if isinstance(member, _METHOD_TYPES):
                is_special = name.startswith("__") and name.endswith("__") and name not in _IGNORED_METHODS
                is_used = name in self._names or is_special or _is_called_by_torch(cls, name, member)
                if is_used or self._executed is not None:
                    self._next.append((path, member))
                else:
                    self._methods_by_name.setdefault(name, []).append((path, member))
            elif not name.startswith(("__", "_abc_")):
                self._add(Reference(path, cls, name, member, by_attribute=True))

    def _visit_function(self, path: str, function: Any) -> None:
        wrapped = [vars(function)[name] for name in _WRAPPED_FUNCTION_ATTRIBUTES if name in vars(function)]
        self._next.extend((path, inner) for inner in wrapped)
        if self._executed is not None and function.__code__ not in self._executed:
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            reference = Reference(joined(path, name), cell, "cell_contents", None, by_attribute=True)
            reference = reference._replace(value=reference.current())
            if reference.value is not MISSING:  # a variable that is bound
                self._state.attributes.append(reference)
                self._add(reference)
        module = function.__globals__.get("__name__") or ""
        if is_library(module) or module.startswith("torch."):
            return
        name = path or function.__qualname__
        self._add_attribute(joined(name, "__code__"), function, "__code__")
        if function.__code__.co_argcount:
            self._add_attribute(joined(name, "__defaults__"), function, "__defaults__")
        if function.__code__.co_kwonlyargcount:
            self._add_attribute(joined(name, "__kwdefaults__"), function, "__kwdefaults__")
        self._visit_attributes(name, vars(function), skipped=_WRAPPED_FUNCTION_ATTRIBUTES)
        self._visit_code(function.__code__, function.__globals__)

    def _visit_code(self, code: types.CodeType, global_values: dict[str, Any]) -> None:
        self._visited_code.add(code)
        names = _names_in_code(code)
        for name in names - self._names:
            self._next.extend(self._methods_by_name.pop(name, ()))
        self._names |= names
        self._visit_globals(global_values, names)
        packages = _packages(global_values.get("__package__"))
        for name in names - global_values.keys():
            for package in packages:  # imported inside the function
                imported = sys.modules.get(package + name)
                if isinstance(imported, types.ModuleType):
                    self._python_modules[id(imported)] = imported

    def _visit_globals(self, values: dict[str, Any], names: set[str]) -> None:
        """Watch the values of these names, and visit them."""
        found = names & values.keys()
        module = values.get("__name__") or ""
        library = isinstance(module, str) and (is_library(module) or module.partition(".")[0] == "torch")
        _, watched = self._global_names.setdefault(id(values), (values, set()))
        new = found - watched
        watched |= found if library else found | (names & _builtin_names())
        for name in new:
            if isinstance(values[name], types.ModuleType):
                self._python_modules[id(values[name])] = values[name]
            elif not library and name not in _IMPORT_MACHINERY:
                self._add(Reference(name, values, name, values[name]))

    def _visit_container(self, path: str, container: Any) -> None:
        if isinstance(container, dict):
            self._state.dicts.append(WatchedDict(path, container))
            if isinstance(container, OrderedDict):
                kind = type(container)
                if kind.__iter__ is OrderedDict.__iter__ and kind.__len__ is OrderedDict.__len__:
                    self._state.sequences.append((path, container))
                else:  # its own methods may do anything: the automatic mappings of transformers import every model
                    self._state.contents.append(Content(path, container, _order, _keep_order))
            items: Iterable[tuple[Any, Any]] = list(dict.items(container))  # not the method of a subclass
            self._next.extend((f"{path} (key)", key) for key in dict.keys(container) if not _is_constant(key))
        else:
            if not any(type(container).__iter__ is base.__iter__ for base in _SEQUENCES):
                self._state.unwatchable = f"`{path}`, a {type(container).__name__} with an `__iter__` of its own"
            if not isinstance(container, (tuple, frozenset)):
                self._state.sequences.append((path, container))
                self._items += len(container)
                if self._items > _MAX_ITEMS:
                    self._state.unwatchable = f"lists with more than {_MAX_ITEMS:,} items, among them `{path}`"
            items = enumerate(container)
        for key, value in items:
            if not _is_constant(value):
                self._add(Reference(f"{path}[{key!r}]", container, key, value))

    def _add_gradients(self) -> None:
        names = (name for name in self._names - _GRAD_MODE_NAMES if "gradient" not in name)
        if not any("grad" in name or name in _GRADIENT_NAMES for name in names):
            return
        for reference in list(self._state.tensors):
            if reference.value.is_leaf and reference.value.requires_grad:
                grad = Reference(f"{reference.path}.grad", reference.value, "grad", reference.value.grad, True)
                self._state.attributes.append(grad)
                if grad.value is not None:
                    self._state.tensors.append(grad)

    def _limit_contents(self) -> None:
        sizes = [(sys.getsizeof(content.value), content.path) for content in self._state.contents]
        if sum(size for size, _ in sizes) > _MAX_CONTENT_BYTES:
            self._state.unwatchable = (
                f"more than {_MAX_CONTENT_BYTES >> 20} MiB of arrays, most of it in `{max(sizes)[1]}`"
            )


def joined(path: str, name: str) -> str:
    """Return the path of an attribute."""
    return f"{path}.{name}" if path else str(name)


def _is_constant(value: Any) -> bool:
    """Return whether a value cannot change. An instance of a subclass of `float` may have attributes that do."""
    return isinstance(value, _CONSTANTS) and (isinstance(value, Enum) or not hasattr(value, "__dict__"))


def _packages(package: Any) -> list[str]:
    """Return what the name of an imported module may begin with: nothing, or with a relative import, a package and a dot."""
    parts = package.split(".") if isinstance(package, str) and package else []
    return ["", *(".".join(parts[:count]) + "." for count in range(len(parts), 0, -1))]


def _names_in_code(code: types.CodeType) -> set[str]:
    """Return every name in a code object, and every string, which may be the name of an attribute: `getattr(self, "layer")`."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in_code(constant)
        elif isinstance(constant, str):
            names.update(constant.split("."))
        elif isinstance(constant, tuple):
            names.update(item for item in constant if isinstance(item, str))
    return names


def _is_called_by_torch(cls: type, name: str, member: Any) -> bool:
    """Return whether code of torch, which is not visited, may use a method: it overrides one of torch's, or is a property."""
    bases = [base for base in cls.__mro__[1:] if base.__module__.partition(".")[0] == "torch"]
    if issubclass(cls, torch.autograd.Function):
        return True
    return bool(bases) and (isinstance(member, property) or any(name in vars(base) for base in bases))


def _is_type_alias(value: Any) -> bool:
    """Return whether this is `list[int]`, `int | str` or `Optional[int]`: they take their attributes from the class that they name."""
    return isinstance(value, (types.GenericAlias, types.UnionType)) or type(value).__module__ in _TYPING_MODULES


def _named_types(alias: Any) -> Iterator[Any]:
    for name in ("__origin__", "__value__"):
        named = getattr(alias, name, None)
        if isinstance(named, type) or _is_type_alias(named):
            yield named
    arguments = getattr(alias, "__args__", ())
    yield from (
        (x for x in arguments if isinstance(x, type) or _is_type_alias(x)) if isinstance(arguments, tuple) else ()
    )


def _can_be_set(holder: Any, name: str, current: Any) -> bool:
    try:
        object.__setattr__(holder, name, current)
    except (AttributeError, TypeError):
        return False
    return True


def slot_names(kind: type) -> Iterator[str]:
    """Yield the names of the attributes that a class declares in `__slots__`."""
    for cls in kind.__mro__:
        if not is_library(cls.__module__):
            for name, member in vars(cls).items():
                if isinstance(member, types.MemberDescriptorType):
                    yield name


def is_library(module: str) -> bool:
    """Return whether objects and functions of a Python module are compared by identity only."""
    if module.startswith(_SKIPPED_PACKAGES):
        return True
    root = module.partition(".")[0]
    return root in _SKIPPED_PACKAGES_BY_ROOT or (root in sys.stdlib_module_names and root not in _VISITED_STDLIB)


@functools.cache
def _attributes_of_every_module() -> frozenset[str]:
    return frozenset(vars(torch.nn.Module()))


@functools.cache
def _builtin_names() -> frozenset[str]:
    import builtins

    return frozenset(vars(builtins))


def _content(path: str, value: Any) -> Content | None:
    """Return how to compare and restore an object that has content but no Python attributes; None for other objects."""
    if isinstance(value, (bytearray, array.array)):
        return Content(path, value, bytes, _write_bytes)
    if isinstance(value, random.Random):
        return Content(path, value, random.Random.getstate, None, watched=False)
    if type(value).__module__ in ("builtins", "itertools") and hasattr(type(value), "__next__"):
        return Content(path, value, _iterator_position, None)
    numpy = sys.modules.get("numpy")
    if numpy is None or not type(value).__module__.startswith("numpy"):
        return None
    if isinstance(value, numpy.ndarray):
        return Content(path, value, _array_content, _write_array)
    if isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return Content(path, bits, lambda bits: repr(bits.state), None, watched=False)
    if isinstance(value, numpy.random.RandomState):
        return Content(path, value, lambda state: repr(state.get_state(legacy=False)), None, watched=False)
    return None


def _write_bytes(value: Any, content: bytes) -> None:
    value[:] = type(value)(content) if isinstance(value, bytearray) else array.array(value.typecode, content)


def _array_content(value: Any) -> tuple[Any, ...]:
    import numpy as np

    # Not the methods of a subclass: `np.ma.masked.tobytes()` raises.
    data = tuple(map(id, value.flat)) if value.dtype.hasobject else np.ndarray.tobytes(value)
    mask = np.ndarray.tobytes(np.ma.getmaskarray(value)) if isinstance(value, np.ma.MaskedArray) else b""
    return value.shape, value.strides, value.dtype.str, data, mask


def _write_array(value: Any, content: tuple[Any, ...]) -> None:
    import numpy as np

    shape, _, dtype, data, mask = content
    if not value.dtype.hasobject and value.shape == shape and value.flags.writeable:
        np.asarray(value)[...] = np.frombuffer(data, dtype).reshape(shape)
        if mask:
            value.mask = np.frombuffer(mask, bool).reshape(shape)


def _iterator_position(value: Any) -> Any:
    """Return something that changes when an iterator is advanced; the iterator is not advanced by this."""
    if isinstance(value, types.GeneratorType):
        return _UNKNOWN_POSITION if value.gi_frame is not None else "exhausted"
    remaining = operator.length_hint(value, -1)
    if remaining >= 0:
        return remaining
    if isinstance(value, itertools.count):
        return repr(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on, iterators of itertools warn
        try:
            return repr(value.__reduce__())
        except TypeError:
            return _UNKNOWN_POSITION


def _backend_flags(_: Any) -> Any:
    return backend_flags()


class _Same:
    """Compares a value as `same_value` does, and keeps it alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and same_value(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


def _context_value(variable: Any) -> _Same:
    return _Same(variable.get(MISSING))


def _local_values(local: Any) -> dict[str, _Same]:
    return {name: _Same(value) for name, value in vars(local).items()}


def _order(ordered: Any) -> list[int]:
    return list(map(id, OrderedDict.__iter__(ordered)))


def _keep_order(ordered: Any, order: Any) -> None:
    """Does nothing: the order is restored with the items."""


def _cached_results(cache: Any) -> list[_Same]:
    """Return what a cache of `functools.lru_cache` holds: its results, and the keys where they are objects."""
    held = [value for value in gc.get_referents(cache) if not isinstance(value, type)]
    own = {id(cache.__wrapped__), id(vars(cache))}
    values = [v for h in held if id(h) not in own for v in (h.values() if isinstance(h, dict) else (h,))]
    results = [v for v in values if type(v).__name__ != "_lru_list_elem"]  # links of a cache with a size limit
    return [_Same(value) for value in sorted(results, key=id)]


def same_value(before: Any, now: Any) -> bool:
    """Return whether two values are one object, or equal constants."""
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, tuple):
        return len(before) == len(now) and all(map(same_value, before, now))
    if isinstance(before, types.MethodType):
        return before.__self__ is now.__self__ and before.__func__ is now.__func__
    if isinstance(before, set):  # equal sets can be changed separately
        return False
    key = constant_key(before)
    return key is not None and key == constant_key(now)


def identical(before: Sequence[Any], now: Iterable[Any]) -> bool:
    """Return whether two sequences have the same objects or equal constants, in the same order."""
    now = list(now)
    return len(before) == len(now) and all(map(same_value, before, now))
