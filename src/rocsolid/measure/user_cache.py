"""Files that one process writes for the next, in a folder that belongs to this user, with a checksum.

Loading such a file may run code from it. A file that another user could have written is therefore ignored, with a warning.
"""

import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import Final

_log = logging.getLogger("rocsolid")
_MAGIC: Final = b"rocsolid artefacts 1\n"
_DIGEST_BYTES: Final = 32


def cache_folder(name: str) -> Path:
    """The default folder of this user for one kind of file."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocsolid" / name


def read(file: Path) -> bytes | None:
    """The stored payload; None when there is no file, or when the file must not be used (logged as a warning)."""
    if not file.exists():
        return None
    reason = untrusted_reason(file)
    data = b"" if reason else file.read_bytes()
    head = len(_MAGIC) + _DIGEST_BYTES
    if not reason and (not data.startswith(_MAGIC) or hashlib.sha256(data[head:]).digest() != data[len(_MAGIC) : head]):
        reason = "the file is damaged, or rocsolid did not write it"
    if reason:
        warn_ignored(file, reason)
        return None
    return data[head:]


def warn_ignored(file: Path, reason: str) -> None:
    """Log that a cache file is not used."""
    _log.warning("cache file %s ignored: %s", file, reason)


def write(file: Path, payload: bytes) -> bool:
    """Store the payload; False, with a warning, when it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
        draft.replace(file)
    except OSError as error:
        _log.warning("cache file %s not written: %s", file, error)
        return False
    return True


def untrusted_reason(file: Path) -> str:
    """Why another user may have written a file or its folder; empty when only this user can."""
    for path in (file, file.parent):
        found = path.stat()
        if found.st_uid != os.getuid():
            return f"{path} belongs to another user"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users may write to {path}"
    return ""
