"""What a trial prints: a file that never takes much room, and whose end is never lost.

The trial's processes write into it while it is shortened. So its beginning is freed where it lies, which takes nothing away that is
written meanwhile; the file becomes short when the last of them is gone.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 64 * 1024
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class Log:
    """A file to give to a process as its output: not a pipe, so that a flood blocks nobody and an orphan holds nothing of ours."""

    def __init__(self, file: Path, most_bytes: int) -> None:
        self.fd = os.open(file, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
        self.dropped_bytes = 0
        self._most_bytes = most_bytes
        self._freed = 0  # bytes at the beginning that take no room

    def shorten(self) -> None:
        """While others write: see that it takes no more room than it may."""
        size = os.fstat(self.fd).st_size
        if size - self._freed <= self._most_bytes:
            return
        beginning = max(0, size - _TAIL_BYTES)
        if free_beginning(self.fd, beginning):
            self._freed = beginning
        else:  # what is written at this very moment is lost
            self._keep_end()

    def end(self) -> str:
        """When nobody writes any more: its last part, which is all that is left where it was too long."""
        if self._freed or os.fstat(self.fd).st_size > self._most_bytes:
            self._keep_end()
        return self._last().decode("utf-8", "replace")

    def _last(self) -> bytes:
        return os.pread(self.fd, _TAIL_BYTES, max(0, os.fstat(self.fd).st_size - _TAIL_BYTES))

    def _keep_end(self) -> None:
        last = self._last()
        self.dropped_bytes += os.fstat(self.fd).st_size - len(last)
        self._freed = 0
        os.ftruncate(self.fd, 0)
        os.write(self.fd, f"[{self.dropped_bytes} bytes dropped]\n".encode() + last)


def free_beginning(fd: int, count: int) -> bool:
    """Give the room of the first bytes of a file back, which then read as zeros; whether its file system can."""
    allocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if allocate is None:
        return False
    allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(allocate(fd, _PUNCH_HOLE | _KEEP_SIZE, 0, count) == 0)
