"""Pins settings for the whole process: in every thread and for every way into the compiler, until they are unpinned.

An assignment to a config module is context-local since torch 2.12, and modes and options are patched on top of it, so an
assignment cannot protect a program. But every entry has two layers that torch reserves for environment variables: one with
precedence over any assignment (`env_value_force`), and one directly below assignments (`env_value_default`). Pins write to these
layers. A forced value holds for every reader of the entry, however another value was requested. A suggested value gives way to
any assignment, mode or option.

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
from rocsolid.torchapi.private_api import private
from rocsolid.torchapi.user_frames import user_location

_UNSET = private("torch.utils._config_module", "_UNSET_SENTINEL", "2.6..")
_FORCE = private("torch.utils._config_module", "_ConfigEntry.env_value_force", "2.6..")
_SUGGEST = private("torch.utils._config_module", "_ConfigEntry.env_value_default", "2.6..")
_EXTRA = private("torch._inductor.compile_fx", "create_compiler_config_extra", "2.9..")
_TREES = private("torch._inductor.cudagraph_trees", "cudagraphify_impl", "2.4..")
_WRAPPER = private("torch", "_TorchCompileInductorWrapper.apply_options", "2.4..")

_GRAPHS: Final = "inductor.triton.cudagraphs"
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
    """All pins of this process; if two pin the same setting, the newest wins."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pins: list[Pins] = []
        self.before: dict[tuple[str, str], object] = {}  # torch's own value by (id, layer)
        self.patches: list[AttributePatch] = []
        self.cancels: list[Cancel] = []

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

    def forced(self, setting: str) -> tuple[bool, object]:
        """Return whether a setting is pinned, and its value."""
        for pins in reversed(self.pins):
            if setting in pins.forced:
                return True, pins.forced[setting]
        return False, None

    def refuse(self, setting: str, requested: object, how: str) -> bool:
        """Return whether the setting is pinned; report a different value to everyone who pinned it."""
        pinned, value = self.forced(setting)
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
        self.cancels = [when_imported(name, callback) for name, callback in callbacks.items()]

    def _uninstall(self) -> None:
        for cancel in self.cancels:
            cancel()
        for patch in reversed(self.patches):
            patch.undo()
        self.cancels, self.patches = [], []

    def _module_imported(self, _module: ModuleType) -> None:
        with self.lock:
            self._refresh()

    def _refresh(self) -> None:
        """Write the current pins to both layers of their entries, and restore entries that are no longer pinned."""
        loaded = _loaded()
        touched: set[str] = set()
        for layer, values in (("env_value_force", "forced"), ("env_value_default", "suggested")):
            wanted: dict[str, object] = {}
            for pins in self.pins:
                wanted.update(getattr(pins, values))
            for setting in wanted.keys() | {s for s, saved in self.before if saved == layer}:
                found = _entry(setting, loaded)
                if found is None:
                    continue
                owner, entry = found
                key = (setting, layer)
                if setting in wanted:
                    self.before.setdefault(key, getattr(entry, layer))
                    value = wanted[setting]
                else:
                    value = self.before.pop(key)
                if getattr(entry, layer) is not value:
                    setattr(entry, layer, value)
                    touched.add(owner)
        for owner in touched:
            _clear_caches(loaded[owner])

    def _patch_config_class(self, module: ModuleType) -> None:
        """Refuse writes to pinned entries: `config.patch` would otherwise write our value back as an assignment."""

        def setattr_(original: Any) -> Any:
            def refusing(config: Any, name: str, value: object) -> None:
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                if not (owner and self.refuse(f"{owner}.{name}", value, "assignment")):
                    original(config, name, value)

            return refusing

        def patch(original: Any) -> Any:
            def refusing(config: Any, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Any:
                changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or kwargs)
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                kept = {
                    k: v for k, v in changes.items() if not (owner and self.refuse(f"{owner}.{k}", v, "config.patch"))
                }
                made = original(config, kept)
                suggested = [k for k in kept if any(f"{owner}.{k}" in pins.suggested for pins in self.pins)]
                return _restore_overrides_on_exit(made, config, suggested) if suggested else made

            return refusing

        config_class = vars(module)["ConfigModule"]
        self.patches += [
            AttributePatch(config_class, "__setattr__", setattr_),
            AttributePatch(config_class, "patch", patch),
        ]

    def _patch_wrapper(self, module: ModuleType) -> None:
        """Check modes and options where `torch.compile` is called, so that the report shows the user's line."""

        def apply_options(original: Any) -> Any:
            def refusing(wrapper: Any, options: Mapping[str, object] | None) -> None:
                mode = _mode_of_caller()
                kept = {
                    k: v
                    for k, v in (options or {}).items()
                    if not self.refuse(f"inductor.{k}", v, f"mode={mode!r}" if mode else f"options[{k!r}]")
                }
                original(wrapper, kept or None)

            return refusing

        self.patches.append(
            AttributePatch(vars(module)["_TorchCompileInductorWrapper"], "apply_options", apply_options)
        )

    def _patch_compile_fx(self, module: ModuleType) -> None:
        """An annotation of a compiled region can enable graphs independently of the config; it is read here."""

        def extra(original: Any) -> Any:
            def refusing(*args: Any, **kwargs: Any) -> Any:
                made = original(*args, **kwargs)
                if made.cudagraphs.value and self.forced(_GRAPHS) == (True, False):
                    self.refuse(_GRAPHS, True, "annotation")
                    made.cudagraphs.value = False
                return made

            return refusing

        self.patches.append(AttributePatch(module, "create_compiler_config_extra", extra))

    def _patch_cudagraph_trees(self, module: ModuleType) -> None:
        """`backend="cudagraphs"` reads no config. Without capture it runs the same operators."""

        def impl(original: Any) -> Any:
            def refusing(model: Any, *args: Any, **kwargs: Any) -> Any:
                if self.forced(_GRAPHS) == (True, False):
                    self.refuse(_GRAPHS, True, "backend='cudagraphs'")
                    return model
                return original(model, *args, **kwargs)

            return refusing

        self.patches.append(AttributePatch(module, "cudagraphify_impl", impl))


_registry: Final = _PinRegistry()


def pin(pins: Pins) -> Callable[[], None]:
    """Activate the pins; return a function that removes them, which may be called more than once."""
    _registry.add(pins)
    leftovers = list(_clear_leftover_defaults(pins.suggested))

    def unpin() -> None:
        _registry.remove(pins)
        while leftovers:
            entry, left = leftovers.pop()
            if read_override(entry) is _UNSET.get():
                write_override(entry, left)

    return unpin


def _clear_leftover_defaults(suggested: Mapping[str, object]) -> Iterator[tuple[Any, object]]:
    """Remove assignments of the default value from this context, and yield them.

    Every compile with options patches the entries and then writes the default back as an assignment, which has precedence over
    a suggestion. A user's assignment of exactly the default cannot be distinguished from that.
    """
    loaded = _loaded()
    for setting in suggested:
        found = _entry(setting, loaded)
        if found is not None:
            entry = found[1]
            left = read_override(entry)
            if left is not _UNSET.get() and left == entry.default:
                write_override(entry, _UNSET.get())
                yield entry, left


def _loaded() -> dict[str, ModuleType]:
    return {owner: sys.modules[name] for owner, name in MODULES.items() if hasattr(sys.modules.get(name), "_config")}


def _entry(setting: str, loaded: Mapping[str, ModuleType]) -> tuple[str, Any] | None:
    """A setting's owner and entry, with aliases followed; `None` while its module is not imported."""
    owner, _, name = setting.partition(".")
    entry = vars(loaded[owner])["_config"].get(name) if owner in loaded else None
    if entry is None:
        return None
    alias = str(getattr(entry, "alias", None) or "")
    return _entry(alias_id(alias), loaded) if alias else (owner, entry)


def _restore_overrides_on_exit(made: Any, config: Any, names: list[str]) -> Any:
    """Restore assignments when a `config.patch` ends: it writes back what it read, which may be our suggestion."""
    entries = [vars(config)["_config"][name] for name in names]
    before: ContextVar[tuple[list[object], ...]] = ContextVar("before", default=())

    class RestoringPatch(type(made)):  # type: ignore[misc]
        def __enter__(self) -> Any:
            before.set((*before.get(), [read_override(entry) for entry in entries]))
            return super().__enter__()

        def __exit__(self, *failure: object) -> Any:
            result = super().__exit__(*failure)
            *rest, held = before.get()
            before.set(tuple(rest))
            for entry, override in zip(entries, held, strict=True):
                write_override(entry, override)
            return result

    made.__class__ = RestoringPatch
    return made


def _clear_caches(module: ModuleType) -> None:
    """Clear the per-context caches of a config module: a new ContextVar is empty in every context."""
    if hasattr(module, "_is_dirty"):
        vars(module)["_is_dirty"] = True
    for name in _CACHE_VARIABLES:
        if isinstance(held := vars(module).get(name), ContextVar):
            vars(module)[name] = ContextVar(held.name, default=Context().run(held.get))  # noqa: B039 - torch's own default


def _mode_of_caller() -> str:
    """The `mode=` of the `torch.compile` call that expands a mode into options; empty for a call with `options=`."""
    caller = sys._getframe(2)
    return str(caller.f_locals.get("mode", "")) if caller.f_code.co_name == "apply_mode" else ""
