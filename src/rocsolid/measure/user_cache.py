"""Files that one process writes for the next, in folders that only this user can write.

Loading such a file may run code from it. Every folder on the way is therefore opened by its descriptor, without following a
link of another user, and checked before the next one is opened in it; the file is read or loaded from the descriptor that was
checked. Nobody can swap a folder or a file in between.
"""

import ctypes
import errno
import grp
import hashlib
import os
import pwd
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from rocsolid.model.log import log as _log

_MAGIC: Final = b"rocsolid artefacts 1\n"
_DIGEST_BYTES: Final = 32
_MAX_LINKS: Final = 40
_FOLDER_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(OSError):
    """Another user could have written a file, or could replace it."""


def cache_folder(name: str) -> Path:
    """The default folder of this user for one kind of file."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "rocsolid" / name
    try:
        return Path.home() / ".cache/rocsolid" / name
    except RuntimeError:  # no HOME, and the user has no entry in the password file
        return Path(tempfile.gettempdir()) / f"rocsolid-{os.getuid()}" / name


def read(file: Path) -> bytes | None:
    """Return the payload that `write` stored; None when there is no file, or when it must not be used (logged as a warning)."""
    data = read_bytes(file)
    if data is None:
        return None
    header_bytes = len(_MAGIC) + _DIGEST_BYTES
    payload = data[header_bytes:]
    if not data.startswith(_MAGIC) or hashlib.sha256(payload).digest() != data[len(_MAGIC) : header_bytes]:
        warn_ignored(file, "the file is damaged, or rocsolid did not write it")
        return None
    return payload


def write(file: Path, payload: bytes) -> bool:
    """Store the payload with a checksum; returns False and logs a warning when it cannot be written."""
    return write_bytes(file, _MAGIC + hashlib.sha256(payload).digest() + payload)


def read_bytes(file: Path) -> bytes | None:
    """Return a file's contents; None when there is no file, or when it must not be used (logged as a warning)."""
    try:
        with open_trusted(file) as descriptor, os.fdopen(os.dup(descriptor), "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        warn_ignored(file, error.strerror or str(error))
        return None


def write_bytes(file: Path, data: bytes, *, mode: int = 0o600) -> bool:
    """Write a file completely or not at all, in a trusted folder; returns False and logs a warning when that is not possible."""
    draft = f".{file.name}.{secrets.token_hex(8)}"
    try:
        with open_folder(file.parent, create=True) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(draft, flags, mode, dir_fd=folder), "wb") as opened:
                    opened.write(data)
                os.replace(draft, file.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise
    except OSError as error:
        _log.warning("cache file %s not written: %s", file, error.strerror or error)
        return False
    return True


def load_library(file: Path) -> ctypes.CDLL:
    """Load a shared library from the descriptor that was checked; raises OSError if it is missing or not trusted."""
    with open_trusted(file) as descriptor:
        # The duplicate stays open: the loader knows a library by its path, so that the number must not be used again.
        kept = os.dup(descriptor)
        try:
            return ctypes.CDLL(f"/proc/self/fd/{kept}")
        except OSError:
            os.close(kept)
            raise


def warn_ignored(file: Path, reason: str) -> None:
    """Log that a cache file is not used."""
    _log.warning("cache file %s ignored: %s", file, reason)


@contextmanager
def open_trusted(file: Path) -> Iterator[int]:
    """Open a regular file that only this user can have written; raises UntrustedError or another OSError."""
    with open_folder(file.parent) as folder:
        # Not blocking: opening a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(file.name, flags, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedError(errno.EPERM, f"{file} is not a regular file")
        _require_ours(status, file)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_folder(folder: Path, *, create: bool = False) -> Iterator[int]:
    """Open a folder of this user, and check every folder above it; raises UntrustedError or another OSError.

    With `create`, missing folders are made for this user alone.
    """
    path = PurePosixPath("/")
    waiting = list(reversed(Path(os.path.abspath(folder)).parts[1:]))  # noqa: PTH100 - resolve() would follow links
    current, links = os.open("/", _FOLDER_FLAGS), 0
    try:
        _require_protected(os.fstat(current), path)
        while waiting:
            name = waiting.pop()
            try:
                following = _open_or_create(name, current, create=create)
            except OSError as error:
                links += 1
                if error.errno not in (errno.ENOTDIR, errno.ELOOP) or links > _MAX_LINKS:
                    raise
                target = _trusted_link(name, current, path / name)
                waiting.extend(reversed([part for part in target.parts if part != "/"]))
                if not target.is_absolute():
                    continue
                following, path, name = os.open("/", _FOLDER_FLAGS), PurePosixPath("/"), ""
            os.close(current)
            current, path = following, path / name
            _require_protected(os.fstat(current), path)
        _require_ours(os.fstat(current), path)
        yield current
    finally:
        os.close(current)


def _open_or_create(name: str, parent: int, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _trusted_link(name: str, parent: int, path: PurePosixPath) -> PurePosixPath:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a folder")
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(errno.EPERM, f"{path} belongs to another user")
    return PurePosixPath(os.readlink(name, dir_fd=parent))


def _require_protected(status: os.stat_result, path: PurePosixPath) -> None:
    """A folder above ours: nobody else may rename what is in it. In a sticky folder such as /tmp, only an entry's owner may."""
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(errno.EPERM, f"{path} belongs to another user")
    if _others_may_write(status) and not status.st_mode & stat.S_ISVTX:
        raise UntrustedError(errno.EPERM, f"other users may write to {path}")


def _require_ours(status: os.stat_result, path: Path | PurePosixPath) -> None:
    if status.st_uid != os.geteuid():
        raise UntrustedError(errno.EPERM, f"{path} belongs to another user")
    if _others_may_write(status):
        raise UntrustedError(errno.EPERM, f"other users may write to {path}")


def _others_may_write(status: os.stat_result) -> bool:
    if not status.st_mode & _WRITABLE_BY_OTHERS:
        return False
    return bool(status.st_mode & stat.S_IWOTH) or not _is_private_group(status.st_gid)


def _is_private_group(group_id: int) -> bool:
    """Whether a group is the one that many systems make for each user: it has the user's name, and no other member."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
