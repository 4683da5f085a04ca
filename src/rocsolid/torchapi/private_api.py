"""Every private torch name that rocsolid uses, declared before use.

A shim states where the name lives and in which torch releases it was found. `Shim.get` returns the object, or raises an error that
names what is missing. `tests/torchapi/test_private_api.py` gets every shim, so a name that upstream moves fails a test by its name.
At run time only the presence of the name decides; the release range is documentation.
"""

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from rocsolid.errors import UnsupportedTorchError
from rocsolid.model.release import Span, span


@dataclass(frozen=True)
class Shim:
    """One private name: `Shim("torch.utils._config_module", "ConfigModule.__setattr__", Span("2.6"))`."""

    module: str
    name: str
    releases: Span
    device_build: bool = False  # absent from CPU builds

    def get(self) -> Any:
        """Return the object; raise UnsupportedTorchError that names what is missing."""
        try:
            found: Any = importlib.import_module(self.module)
            for part in self.name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            installed = getattr(sys.modules.get("torch"), "__version__", "")
            msg = (
                f"torch {installed} has no `{self}`, which this feature needs.\n"
                f"It is a private name, present in torch {self.releases}: "
                "use one of these releases, or a rocsolid that supports yours."
            )
            raise UnsupportedTorchError(msg) from error
        return found

    def exists(self) -> bool:
        """Whether this torch has the name."""
        try:
            self.get()
        except UnsupportedTorchError:
            return False
        return True

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_shims: list[Shim] = []


def private(module: str, name: str, releases: str, *, device_build: bool = False) -> Shim:
    """Declare a private name; `releases` is a span of torch releases such as `2.9..` or `2.12..2.15`."""
    shim = Shim(module, name, span(releases), device_build)
    _shims.append(shim)
    return shim


def all_shims() -> tuple[Shim, ...]:
    """Every shim declared so far; import all modules of the package first to get the complete list."""
    return tuple(_shims)
