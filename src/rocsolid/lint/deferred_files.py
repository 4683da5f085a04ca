"""Parses files in which no rule can match only when compiled or captured code calls into them. Most of them are never parsed."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rocsolid.lint.check_file import check_text
from rocsolid.lint.fact_cache import cache_key
from rocsolid.lint.facts import FileFacts, summary_json
from rocsolid.lint.files import SourceFile


class DeferredFiles:
    """The files of a project that are not parsed yet, by display path."""

    def __init__(self, files: Mapping[str, SourceFile]) -> None:
        self.files = files
        self.rows: dict[str, tuple[str, str]] = {}  # new rows for the cache
        self._data = cache(_read_bytes)

    def read(self, display_path: str) -> FileFacts:
        """Parse a file; without symbols if it cannot be read."""
        file = self.files[display_path]
        data = self._data(file.path)
        facts = check_text(data, file=display_path, module=file.module, package=file.package, complete=True)
        if not facts.error:
            self.rows[cache_key(data, file.module)] = (summary_json(facts), facts.symbols_json)
        return facts

    def that_use(self, name: str) -> list[str]:
        """The files that may call a function of that name or decorate with it."""
        word = whole_word(name)
        return [display_path for display_path, file in self.files.items() if word.search(self._data(file.path))]


def whole_word(name: str) -> re.Pattern[bytes]:
    """A pattern for a name that is not a part of another name. It begins with the name, so that the search is fast."""
    word = re.escape(name.encode())
    return re.compile(word + rb"\b(?<!\w" + word + rb")")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
