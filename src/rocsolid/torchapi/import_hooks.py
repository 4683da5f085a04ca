"""Calls a function with a module: immediately if it is imported already, otherwise right after its import.

Torch's compiler takes seconds to import, so rocsolid must not import it only to patch it.
"""

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

ImportCallback = Callable[[ModuleType], None]
Cancel = Callable[[], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that have callbacks like the other finders, with a loader that calls the callbacks after the import."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[ImportCallback]] = {}
        self.lock = threading.RLock()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.callbacks:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _NotifyingLoader(spec.loader, self)
                return spec
        return None

    def notify(self, module: ModuleType) -> None:
        with self.lock:
            callbacks = self.callbacks.pop(module.__name__, [])
            self._remove_if_unused()
        for callback in callbacks:
            callback(module)

    def add(self, name: str, callback: ImportCallback) -> Cancel:
        with self.lock:
            self.callbacks.setdefault(name, []).append(callback)
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)

        def cancel() -> None:
            with self.lock:
                callbacks = self.callbacks.get(name, [])
                if callback in callbacks:
                    callbacks.remove(callback)
                if not callbacks:
                    self.callbacks.pop(name, None)
                self._remove_if_unused()

        return cancel

    def _remove_if_unused(self) -> None:
        if not self.callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)


class _NotifyingLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # other code must see the module's own loader
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.notify(sys.modules.get(module.__name__, module))


_finder = _Finder()


def when_imported(name: str, callback: ImportCallback) -> Cancel:
    """Call `callback` with the module, immediately or as soon as it is imported; return a function that cancels this."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return lambda: None
    return _finder.add(name, callback)
