"""Every private torch name that rocsolid uses, declared before use.

A declaration contains the module that defines the name, the torch releases that have it, and what is lost without it. `get` returns
the object, or raises an error that contains the missing name. `find` returns None instead, and logs once what is lost.
`rocsolid.torchapi.name_probes` calls every name on something tiny and checks what it did, because a name can also stay and change its
meaning. On a torch release that rocsolid was not tested with, names that fail their probe are closed: `get` and `find` then treat
them as missing.
"""

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from rocsolid.errors import UnsupportedTorchError
from rocsolid.model.log import log as _log
from rocsolid.model.release import Span, span

COMPILER_PACKAGES: Final = ("torch._dynamo", "torch._inductor")  # of modules and of loggers
FOR_OTHER_THREADS: Final = "__rocsolid_for_other_threads__"  # of a method that a thread has patched for itself alone
_ABSENT: Final = object()


def method_of_other_threads(method: Any) -> Any:
    """Return what other threads call in place of a method that a thread has patched for itself alone."""
    while hasattr(method, FOR_OTHER_THREADS):
        method = getattr(method, FOR_OTHER_THREADS)
    return method


class AttributePatch:
    """A replaced attribute. `undo` restores it, unless other code has replaced it again since."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `make(original)`."""
        self._owner = owner
        self._name = name
        self._original = vars(owner).get(name, _ABSENT)
        self._replacement = make(getattr(owner, name))
        setattr(owner, name, self._replacement)

    def undo(self) -> None:
        """Restore the original; if other code has replaced the attribute since, only log a warning."""
        if vars(self._owner).get(self._name) is not self._replacement:
            _log.warning(
                "%s.%s was patched by other code after rocsolid patched it; it is not restored",
                getattr(self._owner, "__name__", self._owner),
                self._name,
            )
        elif self._original is _ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)


@dataclass(frozen=True, kw_only=True)
class PrivateName:
    """One private name: the attribute `name` of `module`, with dots for an attribute of a class."""

    module: str
    name: str
    releases: Span
    without: str = field(compare=False)  # "feature: what happens instead"
    gpu_builds_only: bool = False  # CPU builds of torch do not have it
    of_instances: bool = False  # only instances of the class have it: use `of`
    text: bool = False  # `name` is a text that the module's source contains, such as a log message

    def get(self) -> Any:
        """Return the object; raise UnsupportedTorchError, which contains the missing name."""
        try:
            return self._resolve()
        except (ImportError, AttributeError) as error:
            self._log_once()  # the error may become part of a result
            builds = f"torch {self.releases}{', built with CUDA or ROCm' if self.gpu_builds_only else ''}"
            if self._expected():
                hint = f"official builds of {builds} have it, so yours is changed or too new for this rocsolid"
                fix = "use an official build, or update rocsolid; `rocsolid doctor` lists what else is missing"
            else:
                hint, fix = f"present in {builds}", f"use {builds}"
            msg = (
                f"torch {_installed()} has no `{self}`, or it behaves differently, and this feature needs it.\n"
                f"It is a private name: {hint}.\nfix: {fix}"
            )
            raise UnsupportedTorchError(msg) from error

    def _resolve(self) -> Any:
        if _closed and str(self) in _closed:
            raise AttributeError(self.name)
        value: Any = importlib.import_module(self.module)
        parts = self.name.split(".")
        for part in () if self.text else parts[:-1] if self.of_instances else parts:
            value = getattr(value, part)
        return value

    def find(self) -> Any:
        """Return the object, or None; where the name should exist and does not, log once what is lost."""
        try:
            return self._resolve()
        except (ImportError, AttributeError):
            self._log_once()
            return None

    def of(self, instance: Any, default: Any = None) -> Any:
        """Return the attribute of an instance; `default` where the instance does not have it, or the name is closed."""
        return default if self.is_closed() else getattr(instance, self.attribute, default)

    def is_closed(self) -> bool:
        """Return whether the name failed its probe; the module is not imported for this."""
        if not _closed or str(self) not in _closed:
            return False
        self._log_once()
        return True

    def put(self, value: Any) -> None:
        """Set the attribute for good, also in a build that lacks it; a name that is closed stays as it is."""
        if not self.is_closed():
            owner: Any = importlib.import_module(self.module)
            for part in self.name.split(".")[:-1]:
                owner = getattr(owner, part)
            setattr(owner, self.attribute, value)

    @property
    def attribute(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    def exists(self) -> bool:
        """Return whether the installed torch has the name."""
        try:
            self._resolve()
        except (ImportError, AttributeError):
            return False
        return True

    def patch(self, make: Callable[[Any], Any]) -> AttributePatch | None:
        """Replace the attribute by `make(original)` in the class or module that has it; None where the name is missing."""
        if self.find() is None:
            return None
        owner: Any = sys.modules[self.module]
        for part in self.name.split(".")[:-1]:
            owner = getattr(owner, part)
        return AttributePatch(owner, self.attribute, make)

    def _log_once(self) -> None:
        if self in _logged or not self._expected():
            return
        _logged.add(self)
        _log.warning("%s (torch %s: `%s` is missing or behaves differently)", self.without, _installed(), self)

    def _expected(self) -> bool:
        """Return whether this torch should have the name: a name that came later, or only with a GPU build, is no loss."""
        torch: Any = sys.modules.get("torch")
        gpu_build = torch is not None and torch.backends.cuda.is_built()
        return (gpu_build or not self.gpu_builds_only) and self.releases.holds(_installed())

    def __str__(self) -> str:
        return f'{self.module}: "{self.name}"' if self.text else f"{self.module}.{self.name}"


_declared: Final[dict[str, PrivateName]] = {}
_closed: Final[set[str]] = set()
_logged: Final[set[PrivateName]] = set()


def private_name(module: str, name: str, releases: str, *, without: str, **kind: bool) -> PrivateName:
    """Declare a private name; `releases` is a span of torch releases such as `2.9..` or `2.12..2.15`."""
    declared = PrivateName(module=module, name=name, releases=span(releases), without=without, **kind)
    if _declared.setdefault(str(declared), declared) is not declared:
        msg = f"{declared} is declared twice: import its declaration"
        raise ValueError(msg)
    return declared


def all_private_names() -> tuple[PrivateName, ...]:
    """Return all names declared so far; import all modules of the package first to get the complete list."""
    return tuple(_declared.values())


def close_names(names: Iterable[str], *, quietly: bool = False) -> None:
    """Treat these names as missing in this process; with `quietly`, what is lost is not logged again."""
    _closed.update(names)
    if quietly:
        _logged.update(declared for name, declared in _declared.items() if name in _closed)


def reopen_names() -> None:
    """Undo `close_names`."""
    _closed.clear()
    _logged.clear()


def compiler_imported() -> bool:
    """Return whether this process may have compiled something: it has imported Dynamo."""
    return COMPILER_PACKAGES[0] in sys.modules


def _installed() -> str:
    return str(getattr(sys.modules.get("torch"), "__version__", ""))
