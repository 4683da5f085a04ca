"""Tells when a module arrives: now if it is here already, otherwise right after its import.

Torch's compiler takes seconds to import, so nothing of ours may import it just to prepare it.
"""

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

Arrived = Callable[[ModuleType], None]
Cancel = Callable[[], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the modules waited for be imported as usual, and hands them over right after."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Arrived]] = {}
        self.lock = threading.RLock()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Handover(spec.loader, self)
                return spec
        return None

    def arrived(self, module: ModuleType) -> None:
        with self.lock:
            callbacks = self.waiting.pop(module.__name__, [])
            self._leave_when_idle()
        for callback in callbacks:
            callback(module)

    def wait(self, name: str, callback: Arrived) -> Cancel:
        with self.lock:
            self.waiting.setdefault(name, []).append(callback)
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)

        def cancel() -> None:
            with self.lock:
                callbacks = self.waiting.get(name, [])
                if callback in callbacks:
                    callbacks.remove(callback)
                if not callbacks:
                    self.waiting.pop(name, None)
                self._leave_when_idle()

        return cancel

    def _leave_when_idle(self) -> None:
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


class _Handover(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # to everybody else the module came by its own loader
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.arrived(sys.modules.get(module.__name__, module))


_finder = _Finder()


def when_imported(name: str, callback: Arrived) -> Cancel:
    """Call `callback` with the module, at once or as soon as it has been imported; returns how to cancel."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return lambda: None
    return _finder.wait(name, callback)
