"""Shortens the start of torch's compiler in a process whose compile caches are already filled.

Such a process spends most of its start-up time on two things that can be avoided or overlapped:

- Every cache key contains a hash of the whole Triton installation, including a compiler library of hundreds of megabytes: 0.4 to
  0.8 s on the machines where we measured. Reading and hashing release the interpreter lock, so a thread does it during the imports.
- A fifth of the import time is networkx. Torch's partitioner uses it only in annotations, for a memory budget and for a few debug
  plots, so it is imported on first use.
"""

import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from rocsolid.torchapi.private_api import private_name

_SLOW_START = "rs.optimize: a warm start takes longer, {}"
_TRITON_KEY = private_name(
    "torch._inductor.runtime.triton_compat",
    "triton_key",
    "2.7..",
    without=_SLOW_START.format("because Triton is hashed after the imports"),
)
COMPILE_FX = private_name(
    "torch._inductor.compile_fx",
    "compile_fx",
    "2.4..",
    without=_SLOW_START.format(
        "because the compiler is imported at the first call, and this phase of a compile is not named"
    ),
)
_LAZY_MODULE: Final = "networkx"


def preload_compiler() -> threading.Thread | None:
    """Import torch's compiler while a thread hashes Triton; return the thread, or None if this torch does not have the function."""
    # Imported in this thread, because parallel imports of torch may use partly initialised modules.
    triton_key, thread = _TRITON_KEY.find(), None
    if triton_key is not None:
        thread = threading.Thread(
            target=_compute_triton_key, args=(triton_key,), name="rocsolid-triton-key", daemon=True
        )
        thread.start()
    with contextlib.suppress(Exception), lazily_imported(_LAZY_MODULE):  # a broken compiler is reported when it is used
        COMPILE_FX.find()
    return thread


def _compute_triton_key(triton_key: Any) -> None:
    with contextlib.suppress(Exception):  # a missing or unreadable Triton is reported when the key is used
        triton_key()


class _LazyModule(ModuleType):
    """A placeholder that imports the real module when an attribute is used."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self._importing_thread: int | None = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._importing_thread == threading.get_ident():
            return Any  # during the imports, attributes are used only in annotations
        if sys.modules.get(self.__name__) is self:  # another thread needs the real module
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)

    def resolve(self) -> None:
        """Remove the placeholder from sys.modules: from now on attributes come from the real module."""
        self._importing_thread = None
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def lazily_imported(name: str) -> Iterator[None]:
    """Inside the block, `import name` yields a placeholder that imports the module on first use. No-op if it is imported already or not installed."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        yield
        return
    placeholder = _LazyModule(spec)
    sys.modules[name] = placeholder
    try:
        yield
    finally:
        placeholder.resolve()
