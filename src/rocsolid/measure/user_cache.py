"""Files that one process leaves for the next, in a folder that belongs to this user alone, with a checksum.

What is in them is run when it is loaded, so one that somebody else may have written is left where it is, with a line.
"""

import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import Final

_log = logging.getLogger("rocsolid")
_MAGIC: Final = b"rocsolid artefacts 1\n"
_DIGEST: Final = 32


def folder_for(what: str) -> Path:
    """Where things of one kind are kept for this user unless somebody says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocsolid" / what


def read(file: Path) -> bytes | None:
    """What was kept; None, with a line where there is a file, when that is not to be used."""
    if not file.exists():
        return None
    why = distrust(file)
    data = b"" if why else file.read_bytes()
    head = len(_MAGIC) + _DIGEST
    if not why and (not data.startswith(_MAGIC) or hashlib.sha256(data[head:]).digest() != data[len(_MAGIC) : head]):
        why = "it is damaged, or none of ours"
    if why:
        refuse(file, why)
        return None
    return data[head:]


def refuse(file: Path, why: str) -> None:
    """Say that a file is not used."""
    _log.warning("the artefacts in %s are not used: %s", file, why)


def write(file: Path, payload: bytes) -> bool:
    """Keep it; False, with a line, when that cannot be done."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
        draft.replace(file)
    except OSError as refused:
        _log.warning("the artefacts are not kept: %s", refused)
        return False
    return True


def distrust(file: Path) -> str:
    """Why a file or its folder may have been written by somebody else."""
    for path in (file, file.parent):
        found = path.stat()
        if found.st_uid != os.getuid():
            return f"{path} belongs to another user"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write to {path}"
    return ""
