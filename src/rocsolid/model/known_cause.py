"""Causes of graph breaks and recompiles that rocsolid recognises, each with its fix."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KnownCause:
    """One cause of a graph break or recompile, and how to remove it.

    A graph break is recognised by torch's name for it (`gb_type`), a recompile by the text of the failed guard.
    Where one torch name covers several constructs, `pattern` tells them apart.
    """

    gb_types: tuple[str, ...] = ()  # torch's names of the graph break; empty for recompiles, whose guards have no name
    pattern: str = ""  # regular expression searched in torch's message and in the user's source line
    cause: str  # names what the user wrote, such as `Tensor.item()`
    fix: str
    before: str = ""
    after: str = ""
    underline: tuple[
        str, ...
    ] = ()  # names in the source line to put the caret under, such as "item"; the first one found is used

    def matches(self, gb_type: str, text: str) -> bool:
        """Whether this cause explains a graph break of that type, or a failed guard with that text."""
        return (not self.gb_types or gb_type in self.gb_types) and (
            not self.pattern or bool(re.search(self.pattern, text))
        )
