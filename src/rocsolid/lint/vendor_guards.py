"""Decides across files whether code runs for one vendor only.

A rule sees one file. For the matches that count only on AMD GPUs, this module also looks at two things in other files: whether an
imported name in the conditions around the match is a vendor check, and whether every use of the function is for another vendor.
Few matches need it, so the files are parsed again instead of storing more facts about every file.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from rocsolid.lint.deferred_files import whole_word
from rocsolid.lint.parse import read_source
from rocsolid.model.source import Assignment, Site, Source, SourceMatch
from rocsolid.rules.source.vendors import is_for_one_vendor, is_vendor_entry, is_vendor_specific, uses_of, vendor_checks

_MAX_DEPTH: Final = 3  # callers of callers of callers
_MIN_NAME_LENGTH: Final = 4  # shorter names are used for too many things
_MAX_USERS: Final = 40  # files; what more files use is not for one vendor


class VendorGuards:
    """Looks into the files of a project; `files` are those whose uses of a function count, by display path."""

    def __init__(self, files: Mapping[str, tuple[Path, str, bool]]) -> None:
        self.files = files  # path, module, whether it is a package
        self.modules = {module: display_path for display_path, (_, module, _) in files.items()}
        self._source = cache(self._read)
        self._text = cache(self._read_text)
        self._is_excluded = cache(self._all_uses_exclude_amd)

    def exclude(self, found: SourceMatch, display_path: str) -> bool:
        """Whether the match is in code that does not run on AMD GPUs."""
        if any(self._is_vendor_check(name) for name in found.guards):
            return True
        owner = found.scope.partition(".")[0]
        return bool(owner) and self._is_excluded(display_path, owner, 0)

    def _is_vendor_check(self, full_name: str, depth: int = 0) -> bool:
        """Whether an imported name depends on the vendor, by the file that defines it; also through re-exports."""
        module, _, name = full_name.rpartition(".")
        while module and module not in self.modules:
            module, _, name = module.rpartition(".")
        source = self._source(self.modules[module]) if module else None
        if source is None or depth > _MAX_DEPTH:
            return False
        imported = source.aliases.get(name, "")
        if imported and imported != full_name:
            return self._is_vendor_check(imported, depth + 1)
        return name in vendor_checks(source)

    def _all_uses_exclude_amd(self, display_path: str, name: str, depth: int) -> bool:
        """Whether the project uses a function or class, and every use is for another vendor."""
        if len(name) < _MIN_NAME_LENGTH or depth > _MAX_DEPTH:
            return False
        users = self._files_that_may_use(display_path, name)
        if len(users) > _MAX_USERS:
            return False
        used = False
        for file in users:
            source = self._source(file)
            if source is None:
                continue
            imports = [s for s in source.imports if s.name.rpartition(".")[2] == name]
            if file != display_path and not imports and not any(s.name.endswith(".*") for s in source.imports):
                continue  # another thing with the same name
            guarded_import = bool(imports) and all(is_vendor_specific(s, source) for s in imports)
            for use in uses_of(source, name):
                if use.scope.name.partition(".")[0] == name:
                    continue
                used = True
                if not guarded_import and not self._excludes_amd(use, source, file, name, depth):
                    return False
        return used

    def _files_that_may_use(self, display_path: str, name: str) -> list[str]:
        """The file itself, if it may use the name, and the files that mention the name and its module or package."""
        module = self.files[display_path][1] if display_path in self.files else ""
        words = [part.encode() for part in module.split(".")[-2:]]
        pattern = whole_word(name)
        return [
            file
            for file in self.files
            if pattern.search(text := self._text(file))
            and (file == display_path or any(word in text for word in words))
        ]

    def _excludes_amd(self, use: Site | Assignment, source: Source, file: str, name: str, depth: int) -> bool:
        if is_for_one_vendor(source) or is_vendor_specific(use, source) or is_vendor_entry(use, name):
            return True
        caller = use.scope.name.partition(".")[0]
        return bool(caller) and caller != name and self._is_excluded(file, caller, depth + 1)

    def _read_text(self, display_path: str) -> bytes:
        try:
            return self.files[display_path][0].read_bytes()
        except OSError:
            return b""

    def _read(self, display_path: str) -> Source | None:
        _, module, package = self.files[display_path]
        try:
            text = self._text(display_path).decode("utf-8")
            return read_source(text, file=display_path, module=module, package=package)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
