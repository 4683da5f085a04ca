"""Pins settings for the whole process: in every thread and however the compiler is started, until they are unpinned.

An assignment to a config module cannot protect a program: since torch 2.12 it holds only in its own context, and modes and options
override it. But every entry has two more layers, which torch uses for environment variables: one overrides any assignment
(`env_value_force`), the other replaces the default (`env_value_default`). Pins write to these two layers. A forced value is what
every reader of the entry gets, however another value was requested. A suggested value is overridden by any assignment, mode or option.

These layers exist in torch 2.9 to 2.15; where they are missing, pins are plain assignments.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.live import (
    CONFIG_MACHINERY,
    MODULES,
    UNSET,
    entries_in,
    entries_readable,
    imported_modules,
    read_override,
    write_override,
)
from rocsolid.torchapi.config.source import alias_id
from rocsolid.torchapi.config.watch import SETATTR
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.private_api import AttributePatch, private_name
from rocsolid.torchapi.user_frames import user_location

_NOT_PINNED = "rs.guard: settings are assigned, not pinned: another thread, mode= or options= can override them"
_FORCE = private_name(CONFIG_MACHINERY, "_ConfigEntry.env_value_force", "2.6..", without=_NOT_PINNED)
_SUGGEST = private_name(CONFIG_MACHINERY, "_ConfigEntry.env_value_default", "2.6..", without=_NOT_PINNED)
_PATCH = private_name(
    CONFIG_MACHINERY, "ConfigModule.patch", "2.0..", without="rs.guard: a refused config.patch is not reported"
)
_POLICY = private_name(  # what an annotation overrides: earlier releases have neither
    "torch._inductor.cudagraph_utils",
    "CUDAGraphPolicy",
    "2.12..",
    without="rs.guard: an annotation can enable CUDA graphs although they are forbidden",
)
_TREES = private_name(
    "torch._inductor.cudagraph_trees",
    "cudagraphify_impl",
    "2.4..",
    without='rs.guard: backend="cudagraphs" is not refused',
)
_OPTIONS = private_name(
    "torch",
    "_TorchCompileInductorWrapper.apply_options",
    "2.4..",
    without="rs.guard: mode= and options= that are overridden are not reported",
)
_MODE = private_name(
    "torch",
    "_TorchCompileInductorWrapper.apply_mode",
    "2.4..",
    without="rs.guard: a refused mode= is reported as options=",
)

_CUDA_GRAPHS: Final = "inductor.triton.cudagraphs"
_GRAPH_POLICY: Final = "inductor.cudagraph_policy"  # torch 2.12 and later
_OWNERS: Final = {module: owner for owner, module in MODULES.items()}
_STALE = "rs.guard: code that was cached before a setting was pinned may be used"
_DIRTY = private_name(CONFIG_MACHINERY, "ConfigModule._is_dirty", "2.0..2.11", of_instances=True, without=_STALE)
CACHE_VARIABLES: Final = tuple(
    private_name(CONFIG_MACHINERY, f"ConfigModule.{name}", "2.12..", of_instances=True, without=_STALE)
    for name in ("_hash_dirty_var", "_hash_cache_var", "_get_dict_dirty_keys_var", "_get_dict_cache_var")
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A value that was requested for a pinned setting and refused."""

    setting: str
    requested: object
    how: str  # assignment, config.patch, mode='...', options['...'], annotation, backend='cudagraphs'
    location: str  # the user's file:line


@dataclass(frozen=True, eq=False, kw_only=True)
class Pins:
    """Forced and suggested values by setting id, and a callback for each refused value."""

    forced: Mapping[str, object]
    suggested: Mapping[str, object]
    on_refused: Callable[[Attempt], None]


class _PinRegistry:
    """All pins of this process; if two pin the same setting, the newest is used."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pins: list[Pins] = []
        self.original_values: dict[tuple[str, str], object] = {}  # torch's own value by (id, layer)
        self.patches: list[AttributePatch] = []
        self.cancel_import_hooks: list[Cancel] = []
        self.assigning = False
        self.policy = _NoGraphs()

    def add(self, pins: Pins) -> None:
        with self.lock:
            self.pins.append(pins)
            if len(self.pins) == 1:
                self._install()
            self._refresh()

    def remove(self, pins: Pins) -> None:
        with self.lock:
            self.pins = [p for p in self.pins if p is not pins]
            self._refresh()
            if not self.pins:
                self._uninstall()

    def forced_value(self, setting: str) -> tuple[bool, object]:
        """Return whether a setting is pinned, and its value."""
        for pins in reversed(self.pins):
            if setting in pins.forced:
                return True, pins.forced[setting]
        return False, None

    def graphs_forbidden(self) -> bool:
        """Return whether CUDA graphs of compiled code are pinned to off."""
        return self.forced_value(_CUDA_GRAPHS) == (True, False)

    def refuse(self, setting: str, requested: object, how: str) -> bool:
        """Return whether the setting is pinned; if so and another value is requested, call the callbacks of all its pins."""
        pinned, value = self.forced_value(setting)
        if not pinned or value == requested:
            return pinned
        attempt = Attempt(setting=setting, requested=requested, how=how, location=user_location())
        for pins in self.pins:
            if setting in pins.forced:
                pins.on_refused(attempt)
        return True

    def _install(self) -> None:
        callbacks = {
            _OPTIONS.module: self._patch_wrapper,
            CONFIG_MACHINERY: self._patch_config_class,
            _TREES.module: self._patch_cudagraph_trees,
            **dict.fromkeys(MODULES.values(), self._module_imported),
        }
        self.cancel_import_hooks = [when_imported(name, callback) for name, callback in callbacks.items()]

    def _uninstall(self) -> None:
        for cancel in self.cancel_import_hooks:
            cancel()
        for patch in reversed(self.patches):
            patch.undo()
        self.cancel_import_hooks, self.patches = [], []

    def _module_imported(self, _module: ModuleType) -> None:
        with self.lock:
            self._refresh()

    def _refresh(self) -> None:
        """Write the current pins to both layers of their entries, and restore entries that are no longer pinned."""
        loaded = _loaded_config_modules()
        if not loaded:  # before torch is imported; to look for its names would import it
            return
        changed_owners: set[str] = set()
        if not _can_pin():
            self._assign(loaded)
            return
        for layer, field_name in ((_FORCE.attribute, "forced"), (_SUGGEST.attribute, "suggested")):
            pinned_values = self._pinned_values(field_name)
            for setting in pinned_values.keys() | {
                s for s, saved_layer in self.original_values if saved_layer == layer
            }:
                owner_and_entry = _entry(setting, loaded)
                if owner_and_entry is None:
                    continue
                owner, entry = owner_and_entry
                key = (setting, layer)
                if setting in pinned_values:
                    self.original_values.setdefault(key, getattr(entry, layer))
                    value = pinned_values[setting]
                else:
                    value = self.original_values.pop(key)
                if getattr(entry, layer) is not value:
                    setattr(entry, layer, value)
                    changed_owners.add(owner)
        for owner in changed_owners:
            _clear_caches(loaded[owner])

    def _pinned_values(self, field_name: str) -> dict[str, object]:
        """Return the values for one layer, by setting."""
        values: dict[str, object] = {}
        for pins in self.pins:
            values.update(getattr(pins, field_name))
        if field_name == "forced" and self.graphs_forbidden() and not _POLICY.is_closed():
            values[_GRAPH_POLICY] = self.policy
        return values

    def _assign(self, loaded: Mapping[str, Any]) -> None:
        """Assign the current pins in this context, and restore entries that are no longer pinned."""
        values = {setting: value for pins in self.pins for setting, value in {**pins.suggested, **pins.forced}.items()}
        self.assigning = True
        try:
            for setting in {*values, *(setting for setting, _ in self.original_values)}:
                owner, _, name = setting.partition(".")
                if owner not in loaded or not hasattr(loaded[owner], name):
                    continue
                if setting in values:
                    self.original_values.setdefault((setting, "assigned"), getattr(loaded[owner], name))
                    setattr(loaded[owner], name, values[setting])
                else:
                    setattr(loaded[owner], name, self.original_values.pop((setting, "assigned")))
        finally:
            self.assigning = False

    def _add_patches(self, *patches: AttributePatch | None) -> None:
        self.patches += [patch for patch in patches if patch is not None]

    def _patch_config_class(self, _module: ModuleType) -> None:
        """Refuse writes to pinned entries. Otherwise `config.patch` would read our value and, at its end, assign it."""

        def wrap_setattr(original: Any) -> Any:
            def refusing_setattr(config: Any, name: str, value: object) -> None:
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                if self.assigning or not (owner and self.refuse(f"{owner}.{name}", value, "assignment")):
                    original(config, name, value)

            return refusing_setattr

        def wrap_patch(original: Any) -> Any:
            def refusing_patch(config: Any, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Any:
                changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or kwargs)
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                kept = {
                    k: v for k, v in changes.items() if not (owner and self.refuse(f"{owner}.{k}", v, "config.patch"))
                }
                config_patch = original(config, kept)
                replaced = {name for pins in self.pins for name in pins.suggested} | {_GRAPH_POLICY}
                names = [k for k in kept if f"{owner}.{k}" in replaced and k in entries_in(config)]
                return _restore_overrides_on_exit(config_patch, config, names) if names and _can_pin() else config_patch

            return refusing_patch

        self._add_patches(SETATTR.patch(wrap_setattr), _PATCH.patch(wrap_patch))

    def _patch_wrapper(self, _module: ModuleType) -> None:
        """Check modes and options where `torch.compile` is called, so that the report shows the user's line."""

        def wrap_apply_options(original: Any) -> Any:
            def refusing_apply_options(wrapper: Any, options: Mapping[str, object] | None) -> None:
                mode = _mode_of_caller()
                kept = {
                    k: v
                    for k, v in (options or {}).items()
                    if not self.refuse(f"inductor.{k}", v, f"mode={mode!r}" if mode else f"options[{k!r}]")
                }
                original(wrapper, kept or None)

            return refusing_apply_options

        self._add_patches(_OPTIONS.patch(wrap_apply_options))

    def _patch_cudagraph_trees(self, _module: ModuleType) -> None:
        """Refuse captures of `backend="cudagraphs"`, which reads no config; the same operators then run without a graph."""

        def wrap_cudagraphify(original: Any) -> Any:
            def refusing_cudagraphify(model: Any, *args: Any, **kwargs: Any) -> Any:
                if self.graphs_forbidden():
                    self.refuse(_CUDA_GRAPHS, True, "backend='cudagraphs'")
                    return model
                return original(model, *args, **kwargs)

            return refusing_cudagraphify

        self._add_patches(_TREES.patch(wrap_cudagraphify))


class _NoGraphs:
    """The `cudagraph_policy` while graphs are forbidden: no compiled graph is wrapped. All else is as in the user's policy, or torch's.

    An annotation of a compiled region enables graphs whatever the config says; before it is used, torch asks the policy.
    """

    def __deepcopy__(self, _: object) -> "_NoGraphs":
        """Return itself: torch copies all its settings, and compares the copies."""
        return self

    def should_wrap(self, compiled_graph: Any) -> bool:
        """Return False, and report it, for compiled code for which graphs were requested while they are forbidden."""
        requested = compiled_graph.cudagraph_info is not None or compiled_graph.disabled_cudagraphs_reason
        if requested and _registry.graphs_forbidden():  # torch may keep a copy of its settings for later
            _registry.refuse(_CUDA_GRAPHS, True, "annotation")
            return False
        return bool(self._otherwise().should_wrap(compiled_graph))

    def __getattr__(self, name: str) -> Any:
        """Return a method of the policy that is used otherwise."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._otherwise(), name)

    def _otherwise(self) -> Any:
        owner_and_entry = _entry(_GRAPH_POLICY, _loaded_config_modules())
        users = read_override(owner_and_entry[1]) if owner_and_entry else None
        return _POLICY.get()() if users in (None, UNSET.find(), self) else users


_registry: Final = _PinRegistry()


def pin(pins: Pins) -> Callable[[], None]:
    """Activate the pins; return a function that removes them, which may be called more than once."""
    _registry.add(pins)
    leftovers = list(_clear_leftover_defaults(pins.suggested))

    def unpin() -> None:
        _registry.remove(pins)
        while leftovers:
            entry, default = leftovers.pop()
            if read_override(entry) is UNSET.get():
                write_override(entry, default)

    return unpin


def _clear_leftover_defaults(suggested: Mapping[str, object]) -> Iterator[tuple[Any, object]]:
    """Remove assignments of the default value from this context, and yield them.

    Every compile with options patches entries, and at its end assigns the default to them, which would override a suggested value. We
    cannot distinguish this from a user's assignment of exactly the default.
    """
    loaded = _loaded_config_modules()
    if not loaded or not _can_pin():
        return
    for setting in suggested:
        owner_and_entry = _entry(setting, loaded)
        if owner_and_entry is not None:
            _, entry = owner_and_entry
            override = read_override(entry)
            if override is not UNSET.get() and override == entry.default:
                write_override(entry, UNSET.get())
                yield entry, override


def _can_pin() -> bool:
    return entries_readable() and all(name.find() is not None for name in (_FORCE, _SUGGEST))


def _loaded_config_modules() -> dict[str, ModuleType]:
    """Return the config modules whose import has ended: only then torch has made them ConfigModule objects."""
    return {owner: module for owner, module in imported_modules().items() if type(module) is not ModuleType}


def _entry(setting: str, loaded: Mapping[str, ModuleType]) -> tuple[str, Any] | None:
    """Return the owner and the entry of a setting, or of the setting that it is an alias of; None if the module is not imported."""
    owner, _, name = setting.partition(".")
    entry = entries_in(loaded[owner]).get(name) if owner in loaded else None
    if entry is None:
        return None
    alias = str(getattr(entry, "alias", None) or "")
    return _entry(alias_id(alias), loaded) if alias else (owner, entry)


def _restore_overrides_on_exit(config_patch: Any, config: Any, names: list[str]) -> Any:
    """Restore assignments when a `config.patch` ends: it assigns the value that it read before, which may be our suggested value."""
    entries = [entries_in(config)[name] for name in names]
    saved: ContextVar[tuple[list[object], ...]] = ContextVar("saved", default=())

    class RestoringPatch(type(config_patch)):  # type: ignore[misc]
        def __enter__(self) -> Any:
            saved.set((*saved.get(), [read_override(entry) for entry in entries]))
            return super().__enter__()

        def __exit__(self, *failure: object) -> Any:
            result = super().__exit__(*failure)
            *outer_patches, overrides = saved.get()
            saved.set(tuple(outer_patches))
            for entry, override in zip(entries, overrides, strict=True):
                write_override(entry, override)
            return result

    config_patch.__class__ = RestoringPatch
    return config_patch


def _clear_caches(module: ModuleType) -> None:
    """Clear the per-context caches of a config module by replacing each ContextVar: a new one is empty in every context."""
    if _DIRTY.of(module) is not None:
        vars(module)[_DIRTY.attribute] = True
    for name in CACHE_VARIABLES:
        if isinstance(variable := name.of(module), ContextVar):
            vars(module)[name.attribute] = ContextVar(variable.name, default=Context().run(variable.get))  # noqa: B039 - torch's own default


def _mode_of_caller() -> str:
    """Return the `mode=` of the current `torch.compile` call, from the frame of torch's `apply_mode`; empty for a call with `options=`."""
    caller, apply_mode = sys._getframe(2), _MODE.find()
    is_mode = caller.f_code is getattr(apply_mode, "__code__", None)
    return str(caller.f_locals.get("mode", "")) if is_mode else ""
