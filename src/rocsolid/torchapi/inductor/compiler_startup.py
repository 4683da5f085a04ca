"""Starts torch's compiler in less time, in a process that will find in its caches what it compiles.

Such a process spends most of its time on three things that can be helped. The key of every entry holds a hash of Triton's whole
installation, its compiler library of hundreds of megabytes included: 0.4 to 0.8 s on the machines where we measured, in which
nothing else goes on. Reading and hashing need no interpreter, so a thread does it while the rest is imported. A fifth of what is
imported is networkx, which torch's partitioner names in annotations and calls for a memory budget and a few debug plots. And a pool
of processes is started for kernels that need no compiling.
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

from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.patch import Swap
from rocsolid.torchapi.private_api import door

_TRITON_KEY = door("torch._inductor.runtime.triton_compat", "triton_key", "2.7..")
_COMPILE_FX = door("torch._inductor.compile_fx", "compile_fx", "2.4..")
_WARM_POOL = door("torch._inductor.async_compile", "maybe_warm_pool", "2.13..")
_PUT_OFF: Final = "networkx"


def start_compiler() -> threading.Thread | None:
    """Import torch's compiler, and begin to hash Triton beside that; returns the thread that does, where there is one."""
    try:
        reckon = _TRITON_KEY.reach()  # imported here: two threads that import torch may see half of it
    except UnsupportedTorchError:
        thread = None
    else:
        thread = threading.Thread(target=_quietly, args=(reckon,), name="rocsolid-triton-key", daemon=True)
        thread.start()
    with contextlib.suppress(Exception), put_off(_PUT_OFF):  # what is wrong will be said when it is asked for
        _COMPILE_FX.reach()
    return thread


def _quietly(reckon: Any) -> None:
    with contextlib.suppress(Exception):  # no Triton, or none that can be read: who needs the key will say so
        reckon()


@contextmanager
def no_pool_ahead() -> Iterator[None]:
    """Inductor starts its pool of processes when a kernel must be compiled, and not because one may have to be."""
    try:
        _WARM_POOL.reach()
    except UnsupportedTorchError:
        yield
        return
    swap = Swap(sys.modules[_WARM_POOL.module], _WARM_POOL.name, lambda _: lambda: None)
    try:
        yield
    finally:
        swap.undo()


class _PutOff(ModuleType):
    """In the place of a module that is imported when somebody asks for something in it."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self._importing: int | None = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._importing == threading.get_ident():
            return Any  # in an annotation: nothing is called while modules are imported
        if sys.modules.get(self.__name__) is self:  # another thread, which means it
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)

    def arrive(self) -> None:
        """From now on whoever asks gets the real one."""
        self._importing = None
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def put_off(name: str) -> Iterator[None]:
    """Modules that import this one meanwhile have it when they use it. Nothing is done where it is here, or is not to be had."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        yield
        return
    placeholder = _PutOff(spec)
    sys.modules[name] = placeholder
    try:
        yield
    finally:
        placeholder.arrive()
