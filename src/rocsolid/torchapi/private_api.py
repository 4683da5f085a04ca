"""Every private name of torch that we lean on, declared before use.

A door says where the name lives and in which releases it was seen. `reach` goes through it or says plainly which
name is gone; `tests/upstream` goes through all of them, so that the day upstream moves one a test fails by its name.
Presence decides at run time; the release range only documents.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from rocsolid.errors import UnsupportedTorchError
from rocsolid.model.release import Span, span


@dataclass(frozen=True)
class Door:
    """One private name: `Door("torch.utils._config_module", "ConfigModule.__setattr__", Span("2.6"))`."""

    module: str
    name: str
    seen: Span
    device_build: bool = False  # absent from CPU builds

    def reach(self) -> Any:
        """The object behind the door; raises UnsupportedTorchError that names what is missing."""
        try:
            found: Any = importlib.import_module(self.module)
            for part in self.name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as gone:
            msg = f"this torch has no {self}; it was seen in {self.seen}"
            raise UnsupportedTorchError(msg) from gone
        return found

    def is_open(self) -> bool:
        """Whether the name is there."""
        try:
            self.reach()
        except UnsupportedTorchError:
            return False
        return True

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_doors: list[Door] = []


def door(module: str, name: str, seen: str, *, device_build: bool = False) -> Door:
    """Declare a private name; `seen` is a span of torch releases such as `2.9..` or `2.12..2.15`."""
    declared = Door(module, name, span(seen), device_build)
    _doors.append(declared)
    return declared


def all_doors() -> tuple[Door, ...]:
    """Every door declared so far; import the package's modules first to have them all."""
    return tuple(_doors)
