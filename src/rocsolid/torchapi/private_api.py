"""Every private torch name that rocsolid uses, declared before use.

A declaration contains the module that defines the name, and the torch releases that have it. `PrivateName.get` returns the object, or
raises an error that contains the missing name. `tests/torchapi/test_private_api.py` has one test for each declared name: if torch moves
or removes a name, the test with that name fails. The releases are used in this test and in the error message. At run time `get` does
not compare them with the installed torch; it only tries to find the name.
"""

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from rocsolid.errors import UnsupportedTorchError
from rocsolid.model.release import Span, span


@dataclass(frozen=True)
class PrivateName:
    """One private name: `PrivateName("torch.utils._config_module", "ConfigModule.__setattr__", Span("2.6"))`."""

    module: str
    name: str
    releases: Span
    gpu_builds_only: bool = False  # CPU builds of torch do not have it

    def get(self) -> Any:
        """Return the object; raise UnsupportedTorchError, which contains the missing name."""
        try:
            value: Any = importlib.import_module(self.module)
            for part in self.name.split("."):
                value = getattr(value, part)
        except (ImportError, AttributeError) as error:
            installed = getattr(sys.modules.get("torch"), "__version__", "")
            msg = (
                f"torch {installed} has no `{self}`, which this feature needs.\n"
                f"It is a private name, present in torch {self.releases}: "
                "use one of these releases, or a version of rocsolid that supports your torch."
            )
            raise UnsupportedTorchError(msg) from error
        return value

    def exists(self) -> bool:
        """Return whether the installed torch has the name."""
        try:
            self.get()
        except UnsupportedTorchError:
            return False
        return True

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_declared: list[PrivateName] = []


def private_name(module: str, name: str, releases: str, *, gpu_builds_only: bool = False) -> PrivateName:
    """Declare a private name; `releases` is a span of torch releases such as `2.9..` or `2.12..2.15`."""
    declared = PrivateName(module, name, span(releases), gpu_builds_only)
    _declared.append(declared)
    return declared


def all_private_names() -> tuple[PrivateName, ...]:
    """Return all names declared so far; import all modules of the package first to get the complete list."""
    return tuple(_declared)
