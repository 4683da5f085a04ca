"""Why something stands in the compiler's way, and how to write it instead."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KnownCause:
    """One cause with its fix, recognised by torch's words for it and, where those cover several things, by a pattern."""

    kinds: tuple[str, ...] = ()  # torch's own words; empty for guards, which have none
    pattern: str = ""  # searched in what torch says and in the line of code
    cause: str
    fix: str
    before: str = ""
    after: str = ""
    underline: tuple[str, ...] = ()  # names to put the caret under, such as "item"

    def fits(self, kind: str, text: str) -> bool:
        """Whether this is the fix for what was said."""
        return (not self.kinds or kind in self.kinds) and (not self.pattern or bool(re.search(self.pattern, text)))
