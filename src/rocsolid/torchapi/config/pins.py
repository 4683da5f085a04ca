"""Pins settings for the whole process: every thread, every route into the compiler, and back again.

An assignment to a config module is context-local since torch 2.12, and modes and options are patched on top of it, so that
neither can protect a program. But every entry has two layers that torch itself keeps for environment variables: one above any
assignment (a forcing variable), one just below (a moving one). We write there. What is pinned then holds for whoever reads
the entry, however it was asked for; what is only suggested gives way to any assignment, mode or option.

Seen in torch 2.9 to 2.15; run on 2.11 and 2.13.
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
from rocsolid.torchapi.patch import Swap
from rocsolid.torchapi.private_api import door
from rocsolid.torchapi.user_frames import user_place

_UNSET = door("torch.utils._config_module", "_UNSET_SENTINEL", "2.6..")
_FORCE = door("torch.utils._config_module", "_ConfigEntry.env_value_force", "2.6..")
_SUGGEST = door("torch.utils._config_module", "_ConfigEntry.env_value_default", "2.6..")
_EXTRA = door("torch._inductor.compile_fx", "create_compiler_config_extra", "2.9..")
_TREES = door("torch._inductor.cudagraph_trees", "cudagraphify_impl", "2.4..")
_WRAPPER = door("torch", "_TorchCompileInductorWrapper.apply_options", "2.4..")

_GRAPHS: Final = "inductor.triton.cudagraphs"
_OWNERS: Final = {module: owner for owner, module in MODULES.items()}
_CACHES: Final = ("_hash_dirty_var", "_hash_cache_var", "_get_dict_dirty_keys_var", "_get_dict_cache_var")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Somebody asked for a value that a pin refuses."""

    setting: str
    asked: object
    how: str  # assignment, options, mode, annotation, backend
    place: str  # the user's line


@dataclass(frozen=True, eq=False, kw_only=True)
class Pins:
    """What is pinned and what is suggested, by setting id, and who hears of attempts to move a pin."""

    forced: Mapping[str, object]
    suggested: Mapping[str, object]
    heard: Callable[[Attempt], None]


class _Board:
    """All pins of this process; the newest wins where two speak of one setting."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pins: list[Pins] = []
        self.before: dict[tuple[str, str], object] = {}  # (id, layer) to what torch had there
        self.swaps: list[Swap] = []
        self.cancels: list[Cancel] = []

    def add(self, pins: Pins) -> None:
        with self.lock:
            self.pins.append(pins)
            if len(self.pins) == 1:
                self._watch()
            self._refresh()

    def remove(self, pins: Pins) -> None:
        with self.lock:
            self.pins = [p for p in self.pins if p is not pins]
            self._refresh()
            if not self.pins:
                self._unwatch()

    def forced(self, setting: str) -> tuple[bool, object]:
        """Whether a setting is pinned, and to what."""
        for pins in reversed(self.pins):
            if setting in pins.forced:
                return True, pins.forced[setting]
        return False, None

    def refused(self, setting: str, asked: object, how: str, place: str = "") -> bool:
        """Whether a pin refuses the value; everybody who pinned the setting hears of it."""
        pinned, value = self.forced(setting)
        if not pinned or value == asked:
            return pinned
        attempt = Attempt(setting=setting, asked=asked, how=how, place=place or user_place())
        for pins in self.pins:
            if setting in pins.forced:
                pins.heard(attempt)
        return True

    def _watch(self) -> None:
        waits = {
            "torch": self._swap_wrapper,
            "torch.utils._config_module": self._swap_machinery,
            "torch._inductor.compile_fx": self._swap_compile_fx,
            "torch._inductor.cudagraph_trees": self._swap_trees,
            **dict.fromkeys(MODULES.values(), self._arrived),
        }
        self.cancels = [when_imported(name, callback) for name, callback in waits.items()]

    def _unwatch(self) -> None:
        for cancel in self.cancels:
            cancel()
        for swap in reversed(self.swaps):
            swap.undo()
        self.cancels, self.swaps = [], []

    def _arrived(self, _module: ModuleType) -> None:
        with self.lock:
            self._refresh()

    def _refresh(self) -> None:
        """Bring both layers of every entry that anybody speaks of to what the pins now say."""
        loaded = _loaded()
        touched: set[str] = set()
        for layer, values in (("env_value_force", "forced"), ("env_value_default", "suggested")):
            wanted: dict[str, object] = {}
            for pins in self.pins:
                wanted.update(getattr(pins, values))
            for setting in wanted.keys() | {s for s, kept in self.before if kept == layer}:
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
            _forget_cached(loaded[owner])

    def _swap_machinery(self, module: ModuleType) -> None:
        """Refuse writes to pinned entries where they are made, so that leaving a patch cannot leave our value behind."""

        def setattr_(plain: Any) -> Any:
            def refusing(config: Any, name: str, value: object) -> None:
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                if not (owner and self.refused(f"{owner}.{name}", value, "assignment")):
                    plain(config, name, value)

            return refusing

        def patch(plain: Any) -> Any:
            def refusing(config: Any, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Any:
                changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or kwargs)
                owner = _OWNERS.get(getattr(config, "__name__", ""))
                kept = {k: v for k, v in changes.items() if not (owner and self.refused(f"{owner}.{k}", v, "options"))}
                made = plain(config, kept)
                suggested = [k for k in kept if any(f"{owner}.{k}" in pins.suggested for pins in self.pins)]
                return _leaving_no_trace(made, config, suggested) if suggested else made

            return refusing

        config_class = vars(module)["ConfigModule"]
        self.swaps += [Swap(config_class, "__setattr__", setattr_), Swap(config_class, "patch", patch)]

    def _swap_wrapper(self, module: ModuleType) -> None:
        """Hear of modes and options where `torch.compile` is called, which is the line a user knows."""

        def apply_options(plain: Any) -> Any:
            def hearing(wrapper: Any, options: Mapping[str, object] | None) -> None:
                how = "mode" if _called_by("apply_mode") else "options"
                kept = {k: v for k, v in (options or {}).items() if not self.refused(f"inductor.{k}", v, how)}
                plain(wrapper, kept or None)

            return hearing

        self.swaps.append(Swap(vars(module)["_TorchCompileInductorWrapper"], "apply_options", apply_options))

    def _swap_compile_fx(self, module: ModuleType) -> None:
        """A region's own annotation switches graphs on past the config; this is where it is read."""

        def extra(plain: Any) -> Any:
            def refusing(*args: Any, **kwargs: Any) -> Any:
                made = plain(*args, **kwargs)
                if made.cudagraphs.value and self.forced(_GRAPHS) == (True, False):
                    self.refused(_GRAPHS, True, "annotation")
                    made.cudagraphs.value = False
                return made

            return refusing

        self.swaps.append(Swap(module, "create_compiler_config_extra", extra))

    def _swap_trees(self, module: ModuleType) -> None:
        """`backend="cudagraphs"` asks no config at all; uncaptured, it runs the same operators."""

        def impl(plain: Any) -> Any:
            def refusing(model: Any, *args: Any, **kwargs: Any) -> Any:
                if self.forced(_GRAPHS) == (True, False):
                    self.refused(_GRAPHS, True, "backend")
                    return model
                return plain(model, *args, **kwargs)

            return refusing

        self.swaps.append(Swap(module, "cudagraphify_impl", impl))


_board: Final = _Board()


def pin(pins: Pins) -> Callable[[], None]:
    """Put the pins up; returns how to take them down, which may be called more than once."""
    _board.add(pins)
    traces = list(_take_traces_out(pins.suggested))

    def unpin() -> None:
        _board.remove(pins)
        while traces:
            entry, left = traces.pop()
            if read_override(entry) is _UNSET.reach():
                write_override(entry, left)

    return unpin


def _take_traces_out(suggested: Mapping[str, object]) -> Iterator[tuple[Any, object]]:
    """Take back assignments that torch's own patches left behind in this context.

    Every compile with options patches their entries and writes the default back as an assignment, which would stand above any
    suggestion. Somebody who assigned the very default is not told apart from that.
    """
    loaded = _loaded()
    for setting in suggested:
        found = _entry(setting, loaded)
        if found is not None:
            entry = found[1]
            left = read_override(entry)
            if left is not _UNSET.reach() and left == entry.default:
                write_override(entry, _UNSET.reach())
                yield entry, left


def _loaded() -> dict[str, ModuleType]:
    return {owner: sys.modules[name] for owner, name in MODULES.items() if hasattr(sys.modules.get(name), "_config")}


def _entry(setting: str, loaded: Mapping[str, ModuleType]) -> tuple[str, Any] | None:
    """A setting's entry and the owner of its module, an alias followed; `None` while its module is not imported."""
    owner, _, name = setting.partition(".")
    entry = vars(loaded[owner])["_config"].get(name) if owner in loaded else None
    if entry is None:
        return None
    alias = str(getattr(entry, "alias", None) or "")
    return _entry(alias_id(alias), loaded) if alias else (owner, entry)


def _leaving_no_trace(made: Any, config: Any, names: list[str]) -> Any:
    """A patch writes back what it read, and what it read here may be a suggestion of ours: take that out again."""
    entries = [vars(config)["_config"][name] for name in names]
    before: ContextVar[tuple[list[object], ...]] = ContextVar("before", default=())

    class Traceless(type(made)):  # type: ignore[misc]
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

    made.__class__ = Traceless
    return made


def _forget_cached(module: ModuleType) -> None:
    """A config module caches its contents per context; a new variable is empty in all of them."""
    if hasattr(module, "_is_dirty"):
        vars(module)["_is_dirty"] = True
    for name in _CACHES:
        if isinstance(held := vars(module).get(name), ContextVar):
            vars(module)[name] = ContextVar(held.name, default=Context().run(held.get))  # noqa: B039 - torch's own default


def _called_by(function: str) -> bool:
    return sys._getframe(2).f_code.co_name == function


def active() -> Iterator[Pins]:
    """The pins that are up now, oldest first."""
    yield from _board.pins
