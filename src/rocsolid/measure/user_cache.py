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
    """Return the stored payload; None when there is no file, or when the file must not be used (logged as a warning)."""
    if not file.exists():
        return None
    reason = untrusted_reason(file)
    data = b"" if reason else file.read_bytes()
    header_bytes = len(_MAGIC) + _DIGEST_BYTES
    if not reason and (
        not data.startswith(_MAGIC) or hashlib.sha256(data[header_bytes:]).digest() != data[len(_MAGIC) : header_bytes]
    ):
        reason = "the file is damaged, or rocsolid did not write it"
    if reason:
        warn_ignored(file, reason)
        return None
    return data[header_bytes:]


def warn_ignored(file: Path, reason: str) -> None:
    """Log that a cache file is not used."""
    _log.warning("cache file %s ignored: %s", file, reason)


def write(file: Path, payload: bytes) -> bool:
    """Store the payload; returns False and logs a warning when it cannot be written."""
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
    """Return why a file may have been written by another user; empty when only this user can write the file and its folder."""
    for path in (file, file.parent):
        status = path.stat()
        if status.st_uid != os.getuid():
            return f"{path} belongs to another user"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users may write to {path}"
    return ""
