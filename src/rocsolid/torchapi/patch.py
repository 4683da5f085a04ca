"""Replaces one attribute of a torch class or module, and restores it."""

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("rocsolid")
_ABSENT = object()


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
