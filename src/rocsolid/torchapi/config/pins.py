"""Pins settings for the whole process: in every thread and however the compiler is started, until they are unpinned.

An assignment to a config module cannot protect a program: since torch 2.12 it holds only in its own context, and modes and options
override it. But every entry has two more layers, which torch uses for environment variables: one overrides any assignment
(`env_value_force`), the other replaces the default (`env_value_default`). Pins write to these two layers. A forced value is what
every reader of the entry gets, however another value was requested. A suggested value is overridden by any assignment, mode or option.

These layers exist in torch 2.9 to 2.15; tested on 2.11 and 2.13.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.live import MODULES, read_override, write_override
from rocsolid.torchapi.config.source import alias_id
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.private_api import private_name
from rocsolid.torchapi.user_frames import user_location

_UNSET = private_name("torch.utils._config_module", "_UNSET_SENTINEL", "2.6..")
_FORCE = private_name("torch.utils._config_module", "_ConfigEntry.env_value_force", "2.6..")
_SUGGEST = private_name("torch.utils._config_module", "_ConfigEntry.env_value_default", "2.6..")
_EXTRA = private_name("torch._inductor.compile_fx", "create_compiler_config_extra", "2.9..")
_TREES = private_name("torch._inductor.cudagraph_trees", "cudagraphify_impl", "2.4..")
_WRAPPER = private_name("torch", "_TorchCompileInductorWrapper.apply_options", "2.4..")

_CUDA_GRAPHS: Final = "inductor.triton.cudagraphs"
_OWNERS: Final = {module: owner for owner, module in MODULES.items()}
_CACHE_VARIABLES: Final = ("_hash_dirty_var", "_hash_cache_var", "_get_dict_dirty_keys_var", "_get_dict_cache_var")


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
            "torch": self._patch_wrapper,
            "torch.utils._config_module": self._patch_config_class,
            "torch._inductor.compile_fx": self._patch_compile_fx,
            "torch._inductor.cudagraph_trees": self._patch_cudagraph_trees,
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
        changed_owners: set[str] = set()
        for layer, field_name in (("env_value_force", "forced"), ("env_value_default", "suggested")):
            pinned_values: dict[str, object] = {}
            for pins in self.pins:
                pinned_values.update(getattr(pins, field_name))
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

    def _patch_config_class(self, module: ModuleType) -> None:
        """Refuse writes to pinned entries. Otherwise `config.patch` would read our value and, at its end, assign it."""

        def wrap_setattr(original: Any) -> Any:
            def refusing_setattr(config: Any, name: str, value: object) -> None:
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                if not (owner and self.refuse(f"{owner}.{name}", value, "assignment")):
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
                suggested = [k for k in kept if any(f"{owner}.{k}" in pins.suggested for pins in self.pins)]
                return _restore_overrides_on_exit(config_patch, config, suggested) if suggested else config_patch

            return refusing_patch

        config_class = vars(module)["ConfigModule"]
        self.patches += [
            AttributePatch(config_class, "__setattr__", wrap_setattr),
            AttributePatch(config_class, "patch", wrap_patch),
        ]

    def _patch_wrapper(self, module: ModuleType) -> None:
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

        self.patches.append(
            AttributePatch(vars(module)["_TorchCompileInductorWrapper"], "apply_options", wrap_apply_options)
        )

    def _patch_compile_fx(self, module: ModuleType) -> None:
        """Refuse CUDA graphs that an annotation of a compiled region enables; this does not depend on the config."""

        def wrap_config_extra(original: Any) -> Any:
            def refusing_config_extra(*args: Any, **kwargs: Any) -> Any:
                compiler_config = original(*args, **kwargs)
                if compiler_config.cudagraphs.value and self.forced_value(_CUDA_GRAPHS) == (True, False):
                    self.refuse(_CUDA_GRAPHS, True, "annotation")
                    compiler_config.cudagraphs.value = False
                return compiler_config

            return refusing_config_extra

        self.patches.append(AttributePatch(module, "create_compiler_config_extra", wrap_config_extra))

    def _patch_cudagraph_trees(self, module: ModuleType) -> None:
        """Refuse captures of `backend="cudagraphs"`, which reads no config; the same operators then run without a graph."""

        def wrap_cudagraphify(original: Any) -> Any:
            def refusing_cudagraphify(model: Any, *args: Any, **kwargs: Any) -> Any:
                if self.forced_value(_CUDA_GRAPHS) == (True, False):
                    self.refuse(_CUDA_GRAPHS, True, "backend='cudagraphs'")
                    return model
                return original(model, *args, **kwargs)

            return refusing_cudagraphify

        self.patches.append(AttributePatch(module, "cudagraphify_impl", wrap_cudagraphify))


_registry: Final = _PinRegistry()


def pin(pins: Pins) -> Callable[[], None]:
    """Activate the pins; return a function that removes them, which may be called more than once."""
    _registry.add(pins)
    leftovers = list(_clear_leftover_defaults(pins.suggested))

    def unpin() -> None:
        _registry.remove(pins)
        while leftovers:
            entry, default = leftovers.pop()
            if read_override(entry) is _UNSET.get():
                write_override(entry, default)

    return unpin


def _clear_leftover_defaults(suggested: Mapping[str, object]) -> Iterator[tuple[Any, object]]:
    """Remove assignments of the default value from this context, and yield them.

    Every compile with options patches entries, and at its end assigns the default to them, which would override a suggested value. We
    cannot distinguish this from a user's assignment of exactly the default.
    """
    loaded = _loaded_config_modules()
    for setting in suggested:
        owner_and_entry = _entry(setting, loaded)
        if owner_and_entry is not None:
            _, entry = owner_and_entry
            override = read_override(entry)
            if override is not _UNSET.get() and override == entry.default:
                write_override(entry, _UNSET.get())
                yield entry, override


def _loaded_config_modules() -> dict[str, ModuleType]:
    return {owner: sys.modules[name] for owner, name in MODULES.items() if hasattr(sys.modules.get(name), "_config")}


def _entry(setting: str, loaded: Mapping[str, ModuleType]) -> tuple[str, Any] | None:
    """Return the owner and the entry of a setting, or of the setting that it is an alias of; None if the module is not imported."""
    owner, _, name = setting.partition(".")
    entry = vars(loaded[owner])["_config"].get(name) if owner in loaded else None
    if entry is None:
        return None
    alias = str(getattr(entry, "alias", None) or "")
    return _entry(alias_id(alias), loaded) if alias else (owner, entry)


def _restore_overrides_on_exit(config_patch: Any, config: Any, names: list[str]) -> Any:
    """Restore assignments when a `config.patch` ends: it assigns the value that it read before, which may be our suggested value."""
    entries = [vars(config)["_config"][name] for name in names]
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
    if hasattr(module, "_is_dirty"):
        vars(module)["_is_dirty"] = True
    for name in _CACHE_VARIABLES:
        if isinstance(variable := vars(module).get(name), ContextVar):
            vars(module)[name] = ContextVar(variable.name, default=Context().run(variable.get))  # noqa: B039 - torch's own default


def _mode_of_caller() -> str:
    """Return the `mode=` of the current `torch.compile` call, from the frame of torch's `apply_mode`; empty for a call with `options=`."""
    caller = sys._getframe(2)
    return str(caller.f_locals.get("mode", "")) if caller.f_code.co_name == "apply_mode" else ""
