"""Python functions are nine tenths of many traces and have no part in the answers: check them, but do not build them.

An event says its phase first, and by that alone a function is told from nothing. Told apart by category, a function is
read to its last letter and leaves an empty object behind.
"""

from operator import countOf
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from rocsolid.trace.event_columns import DEVICE, FUNCTIONS, HOST
from rocsolid.trace.event_types import DeviceByCategory, HostByCategory, event_type

_LOOK: Final = 200  # events at the beginning of each piece that are looked at for a Python function
# More pieces than this that hold something unforeseen, and one decoding for all is the shorter way.
_PATIENCE: Final = 8
PLAIN: Final = msgspec.json.Decoder(list[event_type()])  # type: ignore[misc] # a union built at run time


class Function(Struct, tag_field="cat", tag=FUNCTIONS, gc=False):
    """A Python function, of which nothing is kept."""

    ph: Literal["X"]


class Flow(Struct, gc=False):
    """One end of an arrow."""

    ph: Literal["s", "t", "f"]


def _tagged() -> Any:  # noqa: ANN401 - a union built at run time
    union: Any = Function
    for category in (*DEVICE, *HOST):
        base = DeviceByCategory if category in DEVICE else HostByCategory
        about: Any = {"bases": (base,), "namespace": {"cat": category}, "tag_field": "cat", "tag": category}
        union |= msgspec.defstruct(category, [], gc=False, **about)
    for category in ("ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu"):
        union |= msgspec.defstruct(category, [], bases=(Flow,), tag_field="cat", tag=category, gc=False)
    return union


_TAGGED: Final = msgspec.json.Decoder(list[_tagged()])  # type: ignore[misc] # as above


class Sieve:
    """Decodes pieces of a trace without their Python functions, once there are some."""

    def __init__(self) -> None:
        self.functions = False
        self._failed = 0

    def decode(self, text: bytes) -> tuple[list[Any], int]:
        """The events of a list, and how many Python functions are left out of it; raises when any of them is broken."""
        if self.functions and self._failed < _PATIENCE:
            if not text.isascii():
                text.decode()  # what is not decoded to text is not checked for being text
            try:
                events = _TAGGED.decode(text)
            except msgspec.ValidationError:  # a name for a thread, a moment, a category of somebody's own
                self._failed += 1
            else:
                kinds = list(map(type, events))
                functions = countOf(kinds, Function)
                return [e for e, kind in zip(events, kinds, strict=True) if kind is not Function], functions
        events = PLAIN.decode(text)
        # To look for them in the text takes a twentieth of all the time where there are none.
        self.functions = self.functions or any(getattr(event, "cat", "") == FUNCTIONS for event in events[:_LOOK])
        return events, 0
