"""Replaces an attribute of torch's for a while, and puts back what was there."""

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("rocsolid")
_ABSENT = object()


class Swap:
    """One attribute of a class or module. Put back only while it is still ours: another's patch on top is left alone."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner = owner
        self._name = name
        self._before = vars(owner).get(name, _ABSENT)
        self._ours = make(getattr(owner, name))
        setattr(owner, name, self._ours)

    def undo(self) -> None:
        """Put back what was there; say so when somebody has replaced ours meanwhile."""
        if vars(self._owner).get(self._name) is not self._ours:
            _log.warning(
                "%s.%s was replaced by somebody else after rocsolid did; it is left as it is",
                getattr(self._owner, "__name__", self._owner),
                self._name,
            )
        elif self._before is _ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
